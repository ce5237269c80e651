#include "topo/xml.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <pugixml.hpp>

#include "core/unique_fd.h"

namespace tutti::topo {
namespace {

/// Offsets into the text as line numbers; asked for in rising order, it looks at each byte once.
class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {}

  int at(ptrdiff_t offset) {
    const size_t end = std::min(static_cast<size_t>(std::max<ptrdiff_t>(offset, 0)), text_.size());
    if (end < seen_) {
      seen_ = 0;
      line_ = 1;
    }
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<ptrdiff_t>(seen_), text_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    seen_ = end;
    return line_;
  }

 private:
  std::string_view text_;
  size_t seen_ = 0;
  int line_ = 1;
};

class Converter {
 public:
  Converter(const std::string& file, Lines& lines) : file_(file), lines_(lines) {}

  Status convert(const pugi::xml_node& from, Element& to, int depth) {
    to.name = from.name();
    to.line = lines_.at(from.offset_debug());
    if (depth > kMaxXmlDepth) return bad(to, format("more than {} levels of elements", kMaxXmlDepth));
    if (++elements_ > kMaxXmlElements) return bad(to, format("more than {} elements", kMaxXmlElements));
    for (const pugi::xml_attribute& attribute : from.attributes()) {
      if (to.find(attribute.name()) != nullptr) return bad(to, format("the attribute {} is given twice", attribute.name()));
      if (to.attributes.size() == kMaxXmlAttributes) return bad(to, format("more than {} attributes", kMaxXmlAttributes));
      const std::string_view value = attribute.value();
      if (std::any_of(value.begin(), value.end(),
                      [](char c) { return (static_cast<unsigned char>(c) < ' ' && c != '\t' && c != '\n') || c == 127; }))
        return bad(to, format("the attribute {} holds a control character", attribute.name()));
      to.attributes.push_back({attribute.name(), attribute.value()});
    }
    for (const pugi::xml_node& node : from.children()) {
      if (node.type() == pugi::node_pcdata || node.type() == pugi::node_cdata) {
        return bad(to, format("text between elements: \"{}\"", std::string_view(node.value()).substr(0, 40)));
      }
      if (node.type() != pugi::node_element) continue;
      TUTTI_TRY(convert(node, to.children.emplace_back(), depth + 1));
    }
    return {};
  }

 private:
  Status bad(const Element& element, const std::string& why) const {
    return error(Code::InvalidUsage, "{}:{}: <{}>: {}", file_, element.line, element.name, why);
  }

  const std::string& file_;
  Lines& lines_;
  size_t elements_ = 0;
};

void escape(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\n': out += "&#10;"; break;
      case '\t': out += "&#9;"; break;
      case '\r': out += "&#13;"; break;
      default: out += c;
    }
  }
}

void write(std::string& out, const Element& element, size_t indent) {
  out.append(indent, ' ');
  out += '<';
  out += element.name;
  for (const Attribute& attribute : element.attributes) {
    out += ' ';
    out += attribute.name;
    out += "=\"";
    escape(out, attribute.value);
    out += '"';
  }
  if (element.children.empty()) {
    out += "/>\n";
    return;
  }
  out += ">\n";
  for (const Element& child : element.children) write(out, child, indent + 2);
  out.append(indent, ' ');
  out += "</" + element.name + ">\n";
}

/// A pipe that has a name but nobody at its other end does not stop the caller: reading finds its end, writing is refused.
UniqueFd openFile(const std::string& path, int how) {
  UniqueFd file(open(path.c_str(), how | O_CLOEXEC | O_NONBLOCK, 0644));
  if (file) (void)fcntl(file.get(), F_SETFL, fcntl(file.get(), F_GETFL) & ~O_NONBLOCK);
  return file;
}

/// No more than parseXml() needs to refuse what is too long.
Status readText(const std::string& path, std::string& text) {
  const UniqueFd file = openFile(path, O_RDONLY);
  if (!file) return error(Code::SystemError, "{}: {}", path, std::strerror(errno));
  struct stat about {};
  if (fstat(file.get(), &about) == 0 && S_ISDIR(about.st_mode)) return error(Code::SystemError, "{}: is a folder, not an XML file", path);
  char block[65536];
  while (text.size() <= kMaxXmlBytes) {
    const ssize_t got = read(file.get(), block, sizeof block);
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error(Code::SystemError, "{}: {}", path, std::strerror(errno));
    text.append(block, static_cast<size_t>(got));
  }
  return {};
}

}  // namespace

const std::string* Element::find(std::string_view attribute) const {
  for (const Attribute& candidate : attributes) {
    if (candidate.name == attribute) return &candidate.value;
  }
  return nullptr;
}

void Element::set(std::string_view attribute, std::string value) {
  for (Attribute& candidate : attributes) {
    if (candidate.name == attribute) {
      candidate.value = std::move(value);
      return;
    }
  }
  attributes.push_back({std::string(attribute), std::move(value)});
}

const Element* Element::child(std::string_view childName) const {
  for (const Element& candidate : children) {
    if (candidate.name == childName) return &candidate;
  }
  return nullptr;
}

Result<Document> parseXml(std::string file, std::string_view text) {
  if (text.size() > kMaxXmlBytes) return fail(Code::InvalidUsage, "{}: more than {} bytes", file, kMaxXmlBytes);
  if (text.find('\0') != std::string_view::npos) return fail(Code::InvalidUsage, "{}: holds a zero byte, so it is no XML text", file);
  pugi::xml_document parsed;
  const pugi::xml_parse_result result =
      parsed.load_buffer(text.data(), text.size(), pugi::parse_default | pugi::parse_trim_pcdata, pugi::encoding_utf8);
  Lines lines(text);
  if (!result) return fail(Code::InvalidUsage, "{}:{}: no well-formed XML: {}", file, lines.at(result.offset), result.description());

  Document document{.file = std::move(file), .root = {}};
  bool hasRoot = false;
  for (const pugi::xml_node& node : parsed.children()) {
    if (node.type() != pugi::node_element) continue;
    if (hasRoot) {
      return fail(Code::InvalidUsage, "{}:{}: <{}>: a second root element; expected one", document.file, lines.at(node.offset_debug()),
                  node.name());
    }
    hasRoot = true;
    Converter converter(document.file, lines);
    if (Status status = converter.convert(node, document.root, 1); !status.ok()) return tl::unexpected(std::move(status));
  }
  return document;
}

Result<Document> readXml(const std::string& path) {
  std::string text;
  if (Status status = readText(path, text); !status.ok()) return tl::unexpected(std::move(status));
  return parseXml(path, text);
}

std::string writeXml(const Element& root) {
  std::string text;
  write(text, root, 0);
  return text;
}

Status writeText(const std::string& path, std::string_view text) {
  const UniqueFd file = openFile(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file) return error(Code::SystemError, "{}: {}", path, std::strerror(errno));
  for (size_t done = 0; done < text.size();) {
    const ssize_t put = ::write(file.get(), text.data() + done, text.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return error(Code::SystemError, "{}: {}", path, std::strerror(errno));
    done += static_cast<size_t>(put);
  }
  return {};
}

Status writeXmlFile(const std::string& path, const Element& root) { return writeText(path, writeXml(root)); }

}  // namespace tutti::topo
