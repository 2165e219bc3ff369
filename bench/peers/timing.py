"""GPU time of a step, measured as greyhound_bench does it.

A step may overwrite its logits, so they are restored from a copy before each timed step, and what that leaves in
the L2 cache is displaced by reading other memory; neither is timed. The host queues all of this ahead of the GPU, so
that the events see GPU time alone, unless the step itself waits for the GPU.
"""

import statistics

LONG_ENOUGH = 128 << 20  # bytes of logits from which a single step is timed well by two events
ROTATION = 512 << 20  # shorter ones are also timed in a graph that goes through this much


class Timing:
    def __init__(self, torch, budget, most):
        """At most `most` repetitions, fewer (but 5) once a measurement took `budget` seconds of GPU time."""
        self.torch, self.budget, self.most = torch, budget, most
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        self.other = torch.randn(max(4 * l2, 16 << 20) // 4, device="cuda")

    def microseconds(self, restore, step):
        """The median time of step()."""
        times = []
        spent = 0.0
        while len(times) < self.most and (len(times) < 5 or spent < self.budget):
            # A few at a time, so that the host stays ahead of the GPU without a long queue.
            events = [self._once(restore, step) for _ in range(5)]
            self.torch.cuda.synchronize()
            times += [start.elapsed_time(stop) for _, start, stop in events]
            spent += sum(begin.elapsed_time(stop) for begin, _, stop in events) * 1e-3
        return statistics.median(times) * 1e3

    def _once(self, restore, step):
        begin, start, stop = (self.torch.cuda.Event(enable_timing=True) for _ in range(3))
        begin.record()
        restore()
        self.other.sum()
        start.record()
        step()
        stop.record()
        return begin, start, stop

    def graph_microseconds(self, case, step):
        """The time of one step among many that follow each other in a graph, each on logits of its own."""
        torch = self.torch
        calls = -(-ROTATION // case.bytes)
        dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[case.dtype]
        pristine = torch.randn(calls, case.batch, case.vocab, device="cuda", dtype=dtype)
        logits = pristine.clone()
        labels = torch.randint(case.vocab, (calls, case.batch), device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for i in range(3):
                step(logits[i], labels[i])
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(calls):
                step(logits[i], labels[i])
        return self.microseconds(lambda: logits.copy_(pristine), graph.replay) / calls


def extra_bytes(torch, step):
    """Peak memory of step() above what was there before, from torch's allocator and past it."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    free = torch.cuda.mem_get_info()[0]
    result = step()
    torch.cuda.synchronize()
    past_allocator = free - torch.cuda.mem_get_info()[0] - (torch.cuda.memory_reserved() - reserved)
    del result
    return torch.cuda.max_memory_allocated() - allocated + max(0, past_allocator)
