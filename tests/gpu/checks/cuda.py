"""The CUDA driver through ctypes: devices, memory, streams, events, captures, graphs. No other package is needed."""
import ctypes
import os

GLOBAL, THREAD_LOCAL, RELAXED = range(3)
LEGACY, PER_THREAD = 1, 2  # streams that are there without being made; 0, NULL, is the former
NOT_READY = 600
_P = ctypes.POINTER
_void = ctypes.c_void_p


class CudaError(RuntimeError):
    def __init__(self, call, code):
        super().__init__(f"{call} returned {code}")
        self.code = code


class Driver:
    _driver = None

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)

    @classmethod
    def get(cls):
        if cls._driver is None:
            cls._driver = cls()
        return cls._driver

    def code(self, name, *arguments):
        return getattr(self.lib, name)(*arguments)

    def call(self, name, *arguments):
        code = self.code(name, *arguments)
        if code != 0:
            raise CudaError(name, code)


def devices():
    """How many there are; 0 without a driver."""
    try:
        count = ctypes.c_int()
        Driver.get().call("cuDeviceGetCount", ctypes.byref(count))
        return count.value
    except (OSError, CudaError):
        return 0


def are_enough(ranks):
    """Whether each rank has a GPU, or may share one."""
    return devices() >= ranks or (devices() > 0 and os.environ.get("TUTTI_MULTI_RANK_GPU") == "1")


class Device:
    """A GPU with its primary context, which the library uses too."""

    def __init__(self, ordinal):
        self.driver, self.ordinal = Driver.get(), ordinal
        device = ctypes.c_int()
        self.driver.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self.context = _void()
        self.driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)

    def use(self):
        self.driver.call("cuCtxSetCurrent", self.context)
        return self

    def name(self):
        text = ctypes.create_string_buffer(128)
        self.driver.call("cuDeviceGetName", text, len(text), self.ordinal)
        return text.value.decode()

    def bus_id(self):
        """As the system writes it: 0000:1b:00.0."""
        text = ctypes.create_string_buffer(32)
        self.driver.call("cuDeviceGetPCIBusId", text, len(text), self.ordinal)
        return text.value.decode().lower()

    def free_bytes(self):
        self.use()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def allocate(self, size):
        self.use()
        address = ctypes.c_uint64()
        self.driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address):
        self.use()
        self.driver.call("cuMemFree_v2", ctypes.c_uint64(address))

    def write(self, address, data):
        """`data` is in device memory when this returns: the copy alone may return while its last stretch is still under way (CUDA's "API
        synchronization behavior"), and no stream of stream() waits for it."""
        self.use()
        self.driver.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))
        self.synchronize(None)

    def read(self, address, size):
        self.use()
        data = ctypes.create_string_buffer(size)
        self.driver.call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return data.raw

    def copy(self, target, source, size, stream):
        """On the GPU, in the stream's order."""
        self.use()
        self.driver.call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size), _void(stream))

    def stream(self, waits_for_legacy=False):
        self.use()
        stream = _void()
        self.driver.call("cuStreamCreate", ctypes.byref(stream), 0 if waits_for_legacy else 1)
        return stream.value

    def destroy_stream(self, stream):
        self.use()
        self.driver.call("cuStreamDestroy_v2", _void(stream))

    def synchronize(self, stream):
        self.use()
        self.driver.call("cuStreamSynchronize", _void(stream))

    def synchronize_all(self):
        self.use()
        self.driver.call("cuCtxSynchronize")

    def is_idle(self, stream):
        self.use()
        code = self.driver.code("cuStreamQuery", _void(stream))
        if code not in (0, NOT_READY):
            raise CudaError("cuStreamQuery", code)
        return code == 0

    def event(self):
        self.use()
        event = _void()
        self.driver.call("cuEventCreate", ctypes.byref(event), 0)
        return event.value

    def destroy_event(self, event):
        self.use()
        self.driver.call("cuEventDestroy_v2", _void(event))

    def record(self, event, stream):
        self.use()
        self.driver.call("cuEventRecord", _void(event), _void(stream))

    def wait(self, stream, event):
        self.use()
        self.driver.call("cuStreamWaitEvent", _void(stream), _void(event), 0)

    def milliseconds(self, begin, end):
        self.use()
        time = ctypes.c_float()
        self.driver.call("cuEventElapsedTime", ctypes.byref(time), _void(begin), _void(end))
        return time.value

    def begin_capture(self, stream, mode):
        self.use()
        self.driver.call("cuStreamBeginCapture_v2", _void(stream), mode)

    def end_capture(self, stream):
        self.use()
        graph = _void()
        self.driver.call("cuStreamEndCapture", _void(stream), ctypes.byref(graph))
        return Graph(self, graph)


class Gate:
    """Holds up a stream until the host opens it, by a word of the host's memory that the stream waits for."""

    def __init__(self, device):
        self.device = device.use()
        self.memory, address = _void(), ctypes.c_uint64()
        device.driver.call("cuMemHostAlloc", ctypes.byref(self.memory), ctypes.c_size_t(4), 2)  # CU_MEMHOSTALLOC_DEVICEMAP
        device.driver.call("cuMemHostGetDevicePointer_v2", ctypes.byref(address), self.memory, 0)
        self.address, self.word = address, ctypes.c_uint32.from_address(self.memory.value)
        self.word.value = 0

    def close(self, stream):
        self.device.use()
        self.device.driver.call("cuStreamWaitValue32_v2", _void(stream), self.address, ctypes.c_uint32(1), 0)  # CU_STREAM_WAIT_VALUE_GEQ

    def open(self):
        self.word.value = 1


class Graph:
    """Captured; instantiated before its first launch, because nothing may be while another stream of the thread is captured."""

    def __init__(self, device, graph):
        self.device, self.graph, self.executable = device, graph, None

    def prepare(self, stream):
        """Instantiates and uploads it. Where one thread launches the graphs of several GPUs, all of them come first: both may wait for work
        that is under way on another GPU of the process, and that work waits for the graph."""
        if self.executable is not None:
            return
        self.device.use()
        executable = _void()
        self.device.driver.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), self.graph, ctypes.c_uint64(0))
        self.executable = executable
        self.device.driver.call("cuGraphUpload", self.executable, _void(stream))

    def nodes(self):
        count = ctypes.c_size_t()
        self.device.driver.call("cuGraphGetNodes", self.graph, None, ctypes.byref(count))
        return count.value

    def launch(self, stream):
        self.prepare(stream)
        self.device.use()
        self.device.driver.call("cuGraphLaunch", self.executable, _void(stream))

    def destroy(self):
        self.device.use()
        if self.executable is not None:
            self.device.driver.call("cuGraphExecDestroy", self.executable)
        self.device.driver.call("cuGraphDestroy", self.graph)
