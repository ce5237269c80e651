// libFuzzer's way into a target. `--seeds=FOLDER` writes the target's seeds there, a file each, and ends.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "fuzz/target.h"

namespace {

int writeSeeds(const std::string& folder) {
  const std::vector<std::string> all = tutti::fuzz::seeds();
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string path = folder + "/seed-" + std::to_string(i);
    std::ofstream file(path, std::ios::binary);
    file.write(all[i].data(), static_cast<std::streamsize>(all[i].size()));
    file.close();
    if (file.fail()) {
      std::fprintf(stderr, "%s: cannot be written\n", path.c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int LLVMFuzzerInitialize(const int* argc, char*** argv) {
  constexpr std::string_view kSeeds = "--seeds=";
  for (int i = 1; i < *argc; ++i) {
    const std::string_view word = (*argv)[i];
    if (word.starts_with(kSeeds)) std::exit(writeSeeds(std::string(word.substr(kSeeds.size()))));
  }
  return 0;
}

extern "C" __attribute__((visibility("default"))) int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tutti::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
