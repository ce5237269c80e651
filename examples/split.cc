// Ranks in a grid: a communicator for all of them, split into one for each row and one for each column.
//
// Ranks are threads here, each with its own communicator. Summing along rows and then along columns gives what one sum over all gives.
#include <thread>
#include <vector>

#include "check.h"

namespace {

constexpr int kRows = 2;
constexpr int kColumns = 3;
constexpr int kRanks = kRows * kColumns;

int sum(ncclComm_t comm, int value) {
  int total = 0;
  CHECK(ncclAllReduce(&value, &total, 1, ncclInt, ncclSum, comm, nullptr));
  return total;
}

void runRank(const ncclUniqueId& id, int rank) {
  const int row = rank / kColumns;
  const int column = rank % kColumns;
  ncclComm_t all = nullptr;
  CHECK(ncclCommInitRank(&all, kRanks, id, rank));
  // Ranks of one colour get a communicator together; the key orders them within it.
  ncclComm_t rowComm = nullptr;
  ncclComm_t columnComm = nullptr;
  CHECK(ncclCommSplit(all, row, column, &rowComm, nullptr));
  CHECK(ncclCommSplit(all, column, row, &columnComm, nullptr));
  int place = -1;
  CHECK(ncclCommUserRank(rowComm, &place));
  expect(place == column, "a rank's place in its row");

  const int value = 1 << rank;  // every sum tells who took part
  const int rowSum = sum(rowComm, value);
  expect(rowSum == ((1 << kColumns) - 1) << (row * kColumns), "the sum over a row");
  expect(sum(columnComm, rowSum) == (1 << kRanks) - 1, "the sum of the rows");

  // Ranks that want no part of a split give no colour, and get no communicator; they still make the call.
  ncclComm_t first = nullptr;
  CHECK(ncclCommSplit(all, column == 0 ? 0 : NCCL_SPLIT_NOCOLOR, rank, &first, nullptr));
  expect((first != nullptr) == (column == 0), "a communicator for the first column alone");
  if (first != nullptr) {
    int ranks = 0;
    CHECK(ncclCommCount(first, &ranks));
    expect(ranks == kRows, "the size of the first column");
    CHECK(ncclCommDestroy(first));
  }
  CHECK(ncclCommDestroy(columnComm));
  CHECK(ncclCommDestroy(rowComm));
  CHECK(ncclCommDestroy(all));
}

}  // namespace

int main() {
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) ranks.emplace_back(runRank, id, rank);
  for (std::thread& rank : ranks) rank.join();
  std::printf("split: %d rows of %d, all results right\n", kRows, kColumns);
  return 0;
}
