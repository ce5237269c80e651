// The table tests/golden/abi.csv in memory, and how a measured size, value or type is spelled in it.
// Used by abi_layout_test.cc and abi_measure.h, on the thread of the test.
#pragma once

#include <cxxabi.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

namespace tutti::abi {

// "kind,owner,name" → "value,size"; one entry a row of the table.
using Table = std::map<std::string, std::string>;

inline void put(Table& table, const std::string& key, const std::string& value) {
  EXPECT_TRUE(table.emplace(key, value).second) << "twice: " << key;
}

inline std::vector<std::string> splitRow(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

inline std::vector<std::vector<std::string>> readRows() {
  std::vector<std::vector<std::string>> rows;
  std::ifstream file(TUTTI_ABI_TABLE);
  EXPECT_TRUE(file.is_open()) << TUTTI_ABI_TABLE;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    rows.push_back(splitRow(line));
    EXPECT_EQ(rows.back().size(), 5u) << line;
    rows.back().resize(5);
  }
  return rows;
}

inline bool isForThisHeader(const std::vector<std::string>& row) {
#if defined(TUTTI_ABI_VENDOR)
  return row[1] != "tutti";
#else
  return !row.empty();
#endif
}

inline Table readGolden() {
  Table golden;
  for (const auto& row : readRows()) {
    if (row[0] == "symbol" || !isForThisHeader(row)) continue;
    put(golden, row[0] + ',' + row[1] + ',' + row[2], row[3] + ',' + row[4]);
  }
  return golden;
}

template <class Function>
std::string spellType() {
  int status = -1;
  char* text = ::abi::__cxa_demangle(typeid(Function).name(), nullptr, nullptr, &status);
  std::string spelled = status == 0 ? text : "?";
  std::free(text);
  return spelled;
}

template <class Value>
std::string spell(const Value& value) {
  std::ostringstream text;
  if constexpr (std::is_pointer_v<Value>) {
    text << reinterpret_cast<std::uintptr_t>(value);
  } else if constexpr (std::is_enum_v<Value>) {
    text << static_cast<long long>(value);
  } else {
    text << value;
  }
  return text.str();
}

struct Measured {
  Table table;

  template <class T>
  void type(const char* kind, const std::string& name) {
    put(table, std::string(kind) + ',' + name + ',', spell(alignof(T)) + ',' + spell(sizeof(T)));
  }
  void field(const std::string& owner, const std::string& name, std::size_t offset, std::size_t size) {
    put(table, "field," + owner + ',' + name, spell(offset) + ',' + spell(size));
  }
  template <class Value>
  void enumerator(const std::string& owner, const std::string& name, Value value) {
    put(table, "enum," + owner + ',' + name, spell(value) + ',' + spell(sizeof(Value)));
  }
  template <class Value>
  void macro(const std::string& owner, const std::string& name, Value value) {
    put(table, "macro," + owner + ',' + name, spell(value) + ',');
  }
  template <class Value>
  void initial(const std::string& owner, const std::string& name, Value value) {
    put(table, "initial," + owner + ',' + name, spell(value) + ',');
  }
  template <class Function>
  void function(const std::string& owner, const std::string& name) {
    put(table, "function," + owner + ',' + name, spellType<Function>() + ',');
  }
};

}  // namespace tutti::abi
