/* tutti.h: what tutti offers beyond nccl.h. C99 and later, C++11 and later.
 *
 * Host devices: on a machine without a GPU a rank is a thread (or several ranks are driven by one thread in groups) and its
 * buffers are ordinary memory; the number of a host device stands where a CUDA device number would. Host streams take the place
 * of CUDA streams. Explanations: the plan of a call, and the latest events of a rank, as JSON.
 *
 * 1. Every function may be called from any thread unless it says otherwise; a communicator is still used by one thread at a time.
 * 2. Text goes into memory of the caller: see "Text" below.
 * 3. These symbols are not part of NCCL; a program that must also run elsewhere looks them up with dlsym.
 */
#ifndef TUTTI_H_
#define TUTTI_H_

#include "nccl.h"

#define TUTTI_MAJOR 0
#define TUTTI_MINOR 1
#define TUTTI_PATCH 0

/* X*10000 + Y*100 + Z */
#define TUTTI_VERSION(X, Y, Z) ((X) * 10000 + (Y) * 100 + (Z))
#define TUTTI_VERSION_CODE TUTTI_VERSION(TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* ---- Version ------------------------------------------------------------------------------------------------------------ */

/* Version of the library as TUTTI_VERSION_CODE: 0.1.0 is 100. ncclGetVersion tells which NCCL interface it provides. */
int tuttiVersion(void);

/* The same as text, "0.1.0"; constant, never NULL. */
const char* tuttiVersionString(void);

/* ---- Host devices ------------------------------------------------------------------------------------------------------- */

/* Chooses the host device of the calling thread: ranks that this thread creates from now on compute with it, and ncclMemAlloc
 * allocates on it. A thread that never calls this has no choice of its own: each rank it creates then takes the device number
 * equal to its rank. device outside 0 to count-1: ncclInvalidArgument, and the earlier choice stays. */
ncclResult_t tuttiSetHostDevice(int device);

/* Writes the calling thread's host device, -1 if it never chose one. NULL: ncclInvalidArgument. */
ncclResult_t tuttiGetHostDevice(int* device);

/* Writes the number of host devices of this process. They are names, not hardware: more ranks than processor cores are allowed.
 * NULL: ncclInvalidArgument. */
ncclResult_t tuttiGetHostDeviceCount(int* count);

/* ---- Host streams ------------------------------------------------------------------------------------------------------- *
 * A host stream is passed wherever nccl.h takes a cudaStream_t on a communicator of host devices. Work issued on it runs in order
 * on a worker thread; buffers stay untouched by the caller until a synchronize. The NULL stream means: complete on return. */

/* Creates a host stream. s NULL: ncclInvalidArgument; no thread to be had: ncclSystemError. */
ncclResult_t tuttiStreamCreate(cudaStream_t* s);

/* Waits for the stream's work, then frees it. No other thread may use it any more. NULL: ncclSuccess; not a live host stream:
 * ncclInvalidArgument. */
ncclResult_t tuttiStreamDestroy(cudaStream_t s);

/* Waits until all work issued on the stream before this call has ended, well or badly; returns the first error of that work since
 * the latest synchronize. NULL: ncclSuccess; not a live host stream: ncclInvalidArgument. */
ncclResult_t tuttiStreamSynchronize(cudaStream_t s);

/* ncclInProgress while work is pending, otherwise as tuttiStreamSynchronize; never waits. */
ncclResult_t tuttiStreamQuery(cudaStream_t s);

/* ---- Text --------------------------------------------------------------------------------------------------------------- *
 * The functions below write at most `capacity` bytes to `text`, the final NUL included, and to *needed the bytes that the whole
 * text takes with its NUL. Too small a capacity is no error: the text is cut off and *needed > capacity tells. text may be NULL
 * when capacity is 0; needed may be NULL. */

/* The plan that a call would get, why, and what else there was, as one JSON object, without running it:
 *   {"collective":"all_reduce","algorithm":"ring","channels":...,"lanes":...,"slices":...,"slots":...,"sliceBytes":...,
 *    "bytesRead":...,"bytesWritten":...,"bytesSent":...,"messages":...,"steps":...,"simd":"...","kernel":"simple"|null,
 *    "protocol":"Simple"|null,"bytes":...,"ranks":...,"nodes":...,"constants":"...","tuner":"..."|null,
 *    "estimatedUs":...,"parts":{"launchUs":...,"hopsUs":...,"messagesUs":...,"slicesUs":...,"trafficUs":...},
 *    "tracks":...,"rings":[[0,1,2,3],[0,2,3,1]]|null,
 *    "rejected":[{"algorithm":"tree","kernel":...,"protocol":...,"channels":...,"estimatedUs":...,"reason":"..."}]}
 * Byte counts (but for "bytes", the larger buffer) and steps are this rank's; "kernel" and "protocol" are null on host devices.
 * "estimatedUs" is what the choice goes by, the sum of "parts"; "constants" names the numbers behind it, "tuner" what a tuner plugin said,
 * null where none was asked. Channel c runs on track c mod "tracks"; where there are several, "rings" has the ring of each. Of what was
 * rejected, "kernel" and what follows it stand where it came to that. More keys may come. `collective` is one of all_reduce, reduce,
 * broadcast, reduce_scatter, all_gather, all_to_all, gather, scatter, send, recv. `count` is the count that the call itself would take;
 * `op` is ignored where nothing is reduced; `root` is the root or the peer and is ignored where there is none. Local to the rank; called by
 * the thread that uses comm. An argument that the call itself would refuse, or an unknown collective: ncclInvalidArgument. */
ncclResult_t tuttiExplain(ncclComm_t comm, const char* collective, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                          int root, char* text, size_t capacity, size_t* needed);

/* The latest events of this rank, oldest first, as a JSON list of objects. Local to the rank; may be called by any thread while
 * the rank works or is stuck, as long as comm is neither destroyed nor aborted meanwhile. comm NULL: ncclInvalidArgument. */
ncclResult_t tuttiReadFlightRecorder(ncclComm_t comm, char* text, size_t capacity, size_t* needed);

/* What the library's memory on the communicator's GPU is used for, as one JSON object, in bytes:
 *   {"device":0,"pipes":...,"windows":...,"boards":...,"kernels":...,"idle":...,"user":...,"limit":...,"host":...}
 * All communicators of this process on that GPU together. "kernels" is what kernels are told of calls; their code, which the driver
 * loads, is not counted. "idle" is kept for whoever asks next, "user" is what ncclMemAlloc gave,
 * "limit" is TUTTI_MEM_LIMIT, which "user" is not part of; 0: none. "host" is memory of the host, in all, that lies there because GPUs
 * do not reach each other's memory; no limit. "null" for a communicator of host devices. Text as above; any thread. */
ncclResult_t tuttiCommGetMemory(ncclComm_t comm, char* text, size_t capacity, size_t* needed);

/* ---- Deadlines and verdicts --------------------------------------------------------------------------------------------- *
 * A wait of a call ends by itself when it cannot succeed: the ranks made calls that do not match (ncclInvalidUsage), a peer has
 * destroyed its communicator or aborted (ncclRemoteError), or, with a deadline, it stood still too long (ncclRemoteError: the peer
 * that was waited for did not come). All ranks of the communicator get the error, from the call that waits or from the next one. */

/* The longest time in milliseconds for which a call on this rank may wait without moving on; 0: no limit, which is the default unless
 * TUTTI_TIMEOUT_MS is set. Holds at once, also for a call that waits already, and for this rank alone. It is noticed up to some
 * 10 ms late. Calls that wait on a stream for their turn are not counted. ncclCommSplit and ncclCommShrink wait no longer
 * than TUTTI_INIT_TIMEOUT_MS (30 minutes unless set) either. An ncclCommDestroy that waits for other hosts to take what was sent to
 * them gives up when they have taken nothing for as long (for a minute where there is no limit), and succeeds with a warning; what
 * they have not taken is lost, and the receives fail. May be called by any thread, as long as comm is neither destroyed nor aborted
 * meanwhile. Below 0 or above 2^43: ncclInvalidArgument. */
ncclResult_t tuttiCommSetTimeout(ncclComm_t comm, long long milliseconds);

/* Why the first wait of the communicator gave up and where every rank stood, as one JSON object; "null" while none has, and no error
 * ended the communicator while nobody waited:
 *   {"kind":"mismatch"|"deadline"|"departed"|"aborted","code":...,"text":"...","rank":...,"waitedMs":...,
 *    "operation":"AllReduce","sequence":3,"count":...,"type":"...","op":"sum","arrived":[0,1],"missing":[2],
 *    "suspects":[{"rank":2,"host":"node7","link":"Socket 10.0.0.7:45123"}],
 *    "mismatch":[{"rank":0,"operation":...},{"rank":1,"operation":...}],
 *    "ranks":[{"rank":0,"state":"waiting"|"elsewhere"|"departed","begun":4,"finished":3,
 *              "in":[{"operation":...,"slice":0,"slices":1,"step":1,"steps":6,"finishedSteps":1,"waits":"waits for rank 2 ..."}]}]}
 * `operation` to `missing` are those of the call in which `rank` gave up; they are left out when it was in none. `suspects` are
 * ranks that others waited for and that did not wait themselves, that had departed, or died; at most 8. `link` is how `rank` reached
 * each: a network with the address of the connection, or "shared memory of node7" on its own host. `begun` and `finished`
 * count collective calls; a rank that is elsewhere was in no wait that had lasted. On GPUs a call counts as finished once it is
 * launched, and of all ranks only that whose kernel gave up is in "ranks" as one that waits; of calls that were launched together it
 * has all in "in", the first with the words of the wait. Of calls in CUDA graphs it is not known who has come: `arrived` and `missing`
 * are empty. Where nobody is missing, the suspect is whom the kernel waited for, or the kernel of that rank in turn. `root` and `peer`
 * stand where a call has one; of a CommSplit there is the sequence and of a CommShrink nothing else. The same for all ranks of a host,
 * and complete when all have returned; between hosts a moment later. Of a death there each host has the wait of its own rank that gave
 * up first, and in jobs of more than 64 processes of the others what they had told by the way. Text as above; may be called by any
 * thread, like tuttiCommSetTimeout. */
ncclResult_t tuttiCommGetVerdict(ncclComm_t comm, char* text, size_t capacity, size_t* needed);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
