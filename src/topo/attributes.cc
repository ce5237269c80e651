// How attributes are read: numbers, hexadecimal ids and PCI addresses, each with an error that says what was expected.
#include <cerrno>
#include <charconv>
#include <cstdlib>

#include "topo/xml.h"

namespace tutti::topo {
namespace {

/// What tells one element from its siblings, for messages.
constexpr std::string_view kNaming[] = {"busid", "numaid", "name", "target", "id", "dev"};

/// The text of an attribute; null when it is absent or empty.
const std::string* findText(const Element& element, std::string_view attribute) {
  const std::string* text = element.find(attribute);
  return text == nullptr || text->empty() ? nullptr : text;
}

}  // namespace

std::string placeOf(const Document& document, const Element& element) {
  std::string place = format("{}:{}: <{}", document.file, element.line, element.name);
  for (const std::string_view name : kNaming) {
    if (const std::string* value = element.find(name); value != nullptr) {
      place += format(" {}=\"{}\"", name, value->substr(0, 64));
      break;
    }
  }
  return place + ">";
}

Status badAttribute(const Document& document, const Element& element, std::string_view attribute, const std::string* value,
                    std::string_view expected) {
  if (value == nullptr) {
    return error(Code::InvalidUsage, "{}: the attribute {} is missing; expected {}", placeOf(document, element), attribute, expected);
  }
  return error(Code::InvalidUsage, "{}: {}=\"{}\"; expected {}", placeOf(document, element), attribute, value->substr(0, 64), expected);
}

Result<std::optional<int64_t>> findInteger(const Document& document, const Element& element, std::string_view attribute, int64_t least,
                                           int64_t most) {
  const std::string* text = findText(element, attribute);
  if (text == nullptr) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text->c_str(), &end, 0);
  while (*end == ' ') ++end;
  if (errno != 0 || *end != '\0' || end == text->c_str() || value < least || value > most) {
    return tl::unexpected(badAttribute(document, element, attribute, text, format("a whole number from {} to {}", least, most)));
  }
  return value;
}

Result<int64_t> needInteger(const Document& document, const Element& element, std::string_view attribute, int64_t least, int64_t most) {
  if (findText(element, attribute) == nullptr) {
    const std::string* text = element.find(attribute);
    return tl::unexpected(badAttribute(document, element, attribute, text, format("a whole number from {} to {}", least, most)));
  }
  const auto value = findInteger(document, element, attribute, least, most);
  if (!value) return tl::unexpected(value.error());
  return value->value_or(least);
}

Result<std::optional<double>> findNumber(const Document& document, const Element& element, std::string_view attribute, double least,
                                         double most) {
  const std::string* text = findText(element, attribute);
  if (text == nullptr) return std::nullopt;
  double value = 0;
  const char* const last = text->data() + text->size();
  const auto [end, problem] = std::from_chars(text->data(), last, value);  // unlike strtod, the same in every locale
  if (problem != std::errc() || end != last || !(value >= least && value <= most)) {
    return tl::unexpected(badAttribute(document, element, attribute, text, format("a number from {} to {}", least, most)));
  }
  return value;
}

Result<std::optional<uint64_t>> findHex(const Document& document, const Element& element, std::string_view attribute) {
  const std::string* text = findText(element, attribute);
  if (text == nullptr) return std::nullopt;
  const size_t skip = text->starts_with("0x") || text->starts_with("0X") ? 2 : 0;
  uint64_t value = 0;
  bool isFine = text->size() > skip && text->size() - skip <= 16;
  for (size_t i = skip; isFine && i < text->size(); ++i) {
    isFine = isHexDigit((*text)[i]);
    if (isFine) value = value * 16 + static_cast<uint64_t>(std::strtoul(std::string(1, (*text)[i]).c_str(), nullptr, 16));
  }
  if (!isFine) return tl::unexpected(badAttribute(document, element, attribute, text, "a hexadecimal number of at most 64 bits"));
  return value;
}

Result<uint64_t> needBusId(const Document& document, const Element& element, std::string_view attribute) {
  constexpr std::string_view kExpected = "a PCI address such as \"0000:1b:00.0\"";
  const std::string* text = element.find(attribute);
  if (text == nullptr) return tl::unexpected(badAttribute(document, element, attribute, nullptr, kExpected));
  std::string digits;
  bool isFine = true;
  for (const char c : *text) {
    if (c == ':' || c == '.') continue;
    isFine = isFine && isHexDigit(c);
    digits += c;
  }
  // The upper 8 bits of an id hold the system.
  if (!isFine || digits.empty() || digits.size() > 14) return tl::unexpected(badAttribute(document, element, attribute, text, kExpected));
  return std::strtoull(digits.c_str(), nullptr, 16);
}

}  // namespace tutti::topo
