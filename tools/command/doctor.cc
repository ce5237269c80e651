// The command line of `tutti doctor`.
#include "doctor/doctor.h"

#include <memory>

#include "command/command.h"

namespace tutti::tool {
namespace {

constexpr const char* kDoctorFooter = R"(
Looks which libnccl.so.2 programs would load, from LD_PRELOAD, LD_LIBRARY_PATH, the linker's cache and the packages of python3; whether
there is a CUDA driver that works, GPUs, and peer access between them; and at the limits of processes. Run it where and as the job would
run, also under its container and its batch system.

Exit codes: 0 nothing is wrong, 1 something is.)";

}  // namespace

void addDoctor(CLI::App& app, Action& action) {
  const auto path = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("doctor", "check this installation, and say what to mend");
  command->add_option("--probe", *path)->group("");  // for itself: tells of one library
  command->footer(kDoctorFooter);
  command->callback([path, &action] { action = path->empty() ? Action(doctor::run) : Action([path] { return doctor::probe(*path); }); });
}

}  // namespace tutti::tool
