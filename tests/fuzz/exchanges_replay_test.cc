#include "fuzz/replay_bytes.h"
