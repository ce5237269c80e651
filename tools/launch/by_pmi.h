// The exchange through PMI-1, the text protocol that MPICH's launcher (and Slurm's pmi2) speaks over PMI_FD: rank 0 puts the id into
// the job's key-value store, all meet at a barrier, the others get it.
//
// One thread; the protocol is spoken to its end, as a launcher takes a program that leaves it half-way for one that has failed. It
// can be spoken once by each process that the launcher started.
#pragma once

#include <string>

#include "launch/descriptor.h"
#include "launch/exchange.h"

namespace tutti::launch {

Result<ncclUniqueId> exchangeByPmi(const Standing& standing, const MakeId& makeId, Deadline deadline);

/// 256 hexadecimal digits, and back; an error when `text` is anything else.
std::string toHex(const ncclUniqueId& id);
Result<ncclUniqueId> fromHex(std::string_view text);

/// The value of `key` in "cmd=get_result rc=0 value=abc"; empty when it is not there.
std::string_view pmiValue(std::string_view line, std::string_view key);

}  // namespace tutti::launch
