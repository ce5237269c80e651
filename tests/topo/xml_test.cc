#include "topo/xml.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "core/format.h"
#include "topo/data.h"
#include "topo/same.h"

namespace tutti::topo::xml_test {
namespace {

Document parse(std::string_view text) {
  auto document = parseXml("t.xml", text);
  EXPECT_TRUE(document.has_value()) << document.error().text();
  return document ? *document : Document{};
}

std::string refusal(std::string_view text) {
  const auto document = parseXml("t.xml", text);
  return document ? "" : document.error().text();
}

TEST(Xml, ControlCharactersAreRefused) {
  EXPECT_NE(refusal("<system name=\"&#27;[31m\"/>").find("t.xml:1: <system>: the attribute name holds a control character"),
            std::string::npos);
}

TEST(Xml, CommentsBlankLinesAndDeclarationsVanish) {
  const Document document =
      parse("\n<?xml version=\"1.0\"?>\n<!-- one -->\n<system version=\"1\">\n  <!-- two -->\n  <cpu numaid='0'/>\n</system>\n");
  EXPECT_EQ(document.root.name, "system");
  EXPECT_EQ(document.root.line, 4);
  ASSERT_EQ(document.root.children.size(), 1u);
  EXPECT_EQ(document.root.children[0].line, 6);
  EXPECT_EQ(*document.root.children[0].find("numaid"), "0");
  EXPECT_EQ(document.root.children[0].find("busid"), nullptr);
}

TEST(Xml, RefusesWhatIsNoTree) {
  EXPECT_NE(refusal("<a>\n<b>\n</a>").find("t.xml:3: no well-formed XML"), std::string::npos) << refusal("<a>\n<b>\n</a>");
  EXPECT_NE(refusal("").find("no well-formed XML"), std::string::npos) << refusal("");
  EXPECT_NE(refusal("<a/>\n<b/>").find("t.xml:2: <b>: a second root"), std::string::npos);
  EXPECT_NE(refusal("<a>\n<b x=\"1\" x=\"2\"/></a>").find("t.xml:2: <b>: the attribute x is given twice"), std::string::npos);
  EXPECT_NE(refusal("<a>\n  words</a>").find("t.xml:1: <a>: text between elements: \"words\""), std::string::npos);
  EXPECT_NE(refusal(std::string_view("<a/>\0<b/>", 9)).find("zero byte"), std::string::npos);
}

TEST(Xml, BoundsWhatHostileTextCanAskFor) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "<a>";
  EXPECT_FALSE(refusal(deep).empty());
  for (int i = 0; i < 100000; ++i) deep += "</a>";
  EXPECT_NE(refusal(deep).find("more than 64 levels"), std::string::npos);
  std::string many = "<a>";
  for (size_t i = 0; i < kMaxXmlElements; ++i) many += "<b/>";
  EXPECT_NE(refusal(many + "</a>").find("more than 200000 elements"), std::string::npos);
  EXPECT_NE(refusal(std::string(kMaxXmlBytes + 1, ' ')).find("more than 16777216 bytes"), std::string::npos);
  std::string wide = "<a ";
  for (int i = 0; i < 65; ++i) wide += format("x{}=\"\" ", i);
  EXPECT_NE(refusal(wide + "/>").find("more than 64 attributes"), std::string::npos);
  const Document entity = parse("<!DOCTYPE a [<!ENTITY x \"yyyy\">]>\n<a b=\"&x;\"/>");
  EXPECT_EQ(*entity.root.find("b"), "&x;");
}

TEST(Xml, WritesWhatItReadEvenOddCharacters) {
  Element root{.name = "a", .line = 0, .attributes = {{"text", "<\"&'>\n\t é"}}, .children = {}};
  root.children.push_back({.name = "b", .line = 0, .attributes = {}, .children = {}});
  const Document again = parse(writeXml(root));
  EXPECT_EQ(*again.root.find("text"), "<\"&'>\n\t é");
  ASSERT_EQ(again.root.children.size(), 1u);
}

TEST(Xml, EveryFileIsReadAndWrittenWithoutLoss) {
  for (const std::string& file : test::filesOf("", ".xml")) {
    const auto read = readXml(file + ".xml");
    ASSERT_TRUE(read.has_value()) << read.error().text();
    const auto again = parseXml("again", writeXml(read->root));
    ASSERT_TRUE(again.has_value()) << file;
    std::string where;
    EXPECT_TRUE(test::areSame(read->root, again->root, where)) << file << ": " << where;
  }
}

TEST(Xml, FilesThatCannotBeReadOrWrittenAreErrorsOfTheSystem) {
  EXPECT_EQ(readXml("/no/such/file.xml").error().code(), Code::SystemError);
  EXPECT_NE(readXml("/").error().text().find("is a folder"), std::string::npos);
  EXPECT_EQ(writeXmlFile("/no/such/folder/file.xml", {}).code(), Code::SystemError);
  const std::string path = testing::TempDir() + "tutti_xml_test_" + std::to_string(getpid());
  ASSERT_TRUE(writeXmlFile(path, parse("<a b=\"1\"/>").root).ok());
  EXPECT_EQ(*readXml(path)->root.find("b"), "1");
  unlink(path.c_str());
}

/// Opening one waits for its other end, which may never come.
TEST(Xml, APipeThatNobodyHoldsIsNotWaitedFor) {
  const std::string path = format("/tmp/tutti_xml_pipe_{}", getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto read = readXml(path);
  const Status written = writeText(path, "<system/>");
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_FALSE(read.has_value());
  EXPECT_NE(read.error().text().find(path), std::string::npos);
  EXPECT_EQ(written.code(), Code::SystemError);

  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(write(ends[1], "<system/>", 9), 9);
    (void)close(ends[1]);
  });
  const auto piped = readXml(format("/proc/self/fd/{}", ends[0]));
  writer.join();
  (void)close(ends[0]);
  ASSERT_TRUE(piped.has_value()) << piped.error().text();
  EXPECT_EQ(piped->root.name, "system");
}

TEST(Attributes, NumbersAreTakenWholeAndWithinBounds) {
  const Document d = parse("<a n=\"12\" x=\"0x1f\" e=\"\" s=\"16 lanes\" b=\"99999999999999999999\" f=\"1.5\" m=\"-1\"/>");
  const Element& a = d.root;
  EXPECT_EQ(findInteger(d, a, "n", 0, 20)->value(), 12);
  EXPECT_EQ(findInteger(d, a, "x", 0, 100)->value(), 31);
  EXPECT_FALSE(findInteger(d, a, "e", 0, 100)->has_value());
  EXPECT_FALSE(findInteger(d, a, "none", 0, 100)->has_value());
  EXPECT_EQ(findInteger(d, a, "s", 0, 100).error().text(), "t.xml:1: <a>: s=\"16 lanes\"; expected a whole number from 0 to 100");
  EXPECT_FALSE(findInteger(d, a, "b", 0, INT64_MAX).has_value());
  EXPECT_FALSE(findInteger(d, a, "n", 0, 11).has_value());
  EXPECT_FALSE(findInteger(d, a, "m", 0, 11).has_value());
  EXPECT_EQ(needInteger(d, a, "none", 0, 7).error().text(),
            "t.xml:1: <a>: the attribute none is missing; expected a whole number from 0 to 7");
  EXPECT_EQ(findNumber(d, a, "f", 0, 2)->value(), 1.5);
  EXPECT_FALSE(findNumber(d, a, "s", 0, 100).has_value());
}

TEST(Attributes, PciAddressesAndHexadecimals) {
  const Document d = parse(
      "<a b=\"0000:1b:00.0\" m=\"ffff:ff:01.0\" n=\"fffffff:ff:ff.0\" s=\"slot 3\" l=\"0123456789abcdef\" h=\"0x50209f10baa0faf1\"/>");
  EXPECT_EQ(*needBusId(d, d.root, "b"), 0x1b000u);
  EXPECT_EQ(*needBusId(d, d.root, "m"), 0xffffff010u);
  EXPECT_EQ(*needBusId(d, d.root, "n"), 0xfffffffffff0u);
  EXPECT_NE(needBusId(d, d.root, "s").error().text().find("s=\"slot 3\"; expected a PCI address"), std::string::npos);
  EXPECT_FALSE(needBusId(d, d.root, "l").has_value());
  EXPECT_FALSE(needBusId(d, d.root, "none").has_value());
  EXPECT_EQ(findHex(d, d.root, "h")->value(), 0x50209f10baa0faf1u);
  EXPECT_FALSE(findHex(d, d.root, "s").has_value());
}

}  // namespace
}  // namespace tutti::topo::xml_test
