// A library of the name libnccl.so.2 that the programs of fake_nccl_tests.cc map; built twice, so that there are two build ids.
extern "C" __attribute__((visibility("default"))) double fakeMicroseconds() { return TUTTI_FAKE_MICROSECONDS; }
