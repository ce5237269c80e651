// XML as a tree of elements with lines: what topology and graph files are read from and written to.
//
// Plain values; any thread. The text may be hostile: size, depth and the number of elements are bounded, entities do not expand.
// 1. Comments, declarations and blank lines vanish; text between elements is refused, and so is an attribute given twice.
// 2. Attributes keep their text and order, so that what is written again is what was read.
// 3. Every error names file, line, element, attribute, value and what was expected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace tutti::topo {

struct Attribute {
  std::string name;
  std::string value;
};

struct Element {
  std::string name;
  int line = 0;  ///< In the file it was read from; 0 for one that was made.
  std::vector<Attribute> attributes;
  std::vector<Element> children;

  const std::string* find(std::string_view attribute) const;  ///< Null when it is not there.
  void set(std::string_view attribute, std::string value);    ///< Replaces it or adds it as the last.
  const Element* child(std::string_view childName) const;     ///< The first of that name; null when there is none.
};

struct Document {
  std::string file;  ///< For messages.
  Element root;
};

inline constexpr size_t kMaxXmlBytes = 16U << 20;
inline constexpr int kMaxXmlDepth = 64;
inline constexpr size_t kMaxXmlElements = 200000;
inline constexpr size_t kMaxXmlAttributes = 64;  ///< Of one element.

Result<Document> parseXml(std::string file, std::string_view text);
Result<Document> readXml(const std::string& path);
std::string writeXml(const Element& root);
/// A whole file; one that is there is replaced. SystemError with its path.
Status writeText(const std::string& path, std::string_view text);
Status writeXmlFile(const std::string& path, const Element& root);

/// 0-9, a-f, A-F.
constexpr bool isHexDigit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/// `file:line: <pci busid="0000:1b:00.0">`, to begin a message with.
std::string placeOf(const Document& document, const Element& element);

/// The error for an attribute with a senseless value, or for one that has to be there (`value` null).
Status badAttribute(const Document& document, const Element& element, std::string_view attribute, const std::string* value,
                    std::string_view expected);

/// Numbers as C writes them (decimal, 0x…), whole text; an absent or empty attribute is nullopt. Error: anything else, out of range.
Result<std::optional<int64_t>> findInteger(const Document& document, const Element& element, std::string_view attribute, int64_t least,
                                           int64_t most);
Result<int64_t> needInteger(const Document& document, const Element& element, std::string_view attribute, int64_t least, int64_t most);
Result<std::optional<double>> findNumber(const Document& document, const Element& element, std::string_view attribute, double least,
                                         double most);
/// Hexadecimal with or without 0x, up to 64 bits.
Result<std::optional<uint64_t>> findHex(const Document& document, const Element& element, std::string_view attribute);

/// A PCI address such as 0000:1b:00.0, or a made-up one such as fffffff:ff:ff.0: hex digits with ':' and '.' between, as one number.
Result<uint64_t> needBusId(const Document& document, const Element& element, std::string_view attribute);

}  // namespace tutti::topo
