/* Looks like libcuda.so.1 from outside. TUTTI_STUB_VERSION: the version it tells; TUTTI_STUB_MISSING: a function that it lacks;
   TUTTI_STUB_BROKEN: even the version fails. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int cuDriverGetVersion(int* version) {
  const char* wanted = getenv("TUTTI_STUB_VERSION");
  if (getenv("TUTTI_STUB_BROKEN") != NULL) return 34;
  *version = wanted == NULL ? 12040 : atoi(wanted);
  return 0;
}

static int countThree(int* count) {
  *count = 3;
  return 0;
}

static int notSupported(void) { return 801; }

int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* found) {
  const char* missing = getenv("TUTTI_STUB_MISSING");
  const int lacks = missing != NULL && strcmp(missing, name) == 0;
  *found = lacks ? 1 : 0;
  *function = NULL;
  if (flags != 1 || version < 2000) return 1;
  if (lacks) return 500;
  *function = strcmp(name, "cuDeviceGetCount") == 0 ? (void*)countThree : (void*)notSupported;
  return 0;
}
