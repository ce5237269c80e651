#include "bootstrap/world.h"

#include <sys/stat.h>

#include "bootstrap/seal.h"
#include "bootstrap/wire.h"
#include "config/params.h"
#include "core/host_name.h"

namespace tutti::bootstrap {

using config::get;
using config::Param;

Settings readSettings() {
  Settings settings;
  settings.interfaceNames = get<Param::SocketIfname>();
  settings.family = get<Param::SocketFamily>();
  settings.commId = get<Param::CommId>();
  settings.jobSecret = config::findText(Param::TuttiJobSecret).value_or("");  // not getText(): a secret is not reported
  settings.hostId = get<Param::HostId>();
  settings.retries = get<Param::SocketRetryCnt>();
  settings.retrySleepMs = get<Param::SocketRetrySleepMsec>();
  settings.namesThreads = get<Param::SetThreadName>();
  return settings;
}

HostFacts readHostFacts() {
  HostFacts facts;
  facts.name = hostName();
  facts.bootId = bootId();
  struct stat status {};
  if (stat("/proc/self/ns/net", &status) == 0) facts.networkSpace = status.st_ino;
  return facts;
}

uint64_t identityOf(const HostFacts& facts, const std::string& hostId) {
  Writer writer;
  writer.text(hostId.empty() ? facts.name : hostId);
  writer.text(hostId.empty() ? facts.bootId : "");
  writer.number(facts.networkSpace);
  return hashNumber("host", writer.view());
}

}  // namespace tutti::bootstrap
