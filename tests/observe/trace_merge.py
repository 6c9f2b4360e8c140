#!/usr/bin/env python3
"""Tests scripts/trace-merge with traces whose clocks are known, and, given a program, with those of
three processes that train. Needs only the standard library.

    tests/observe/trace_merge.py --merge scripts/trace-merge [--demo scripts/demo --program TRAIN_DIGITS]"""
import argparse
import collections
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

ARGUMENTS = None
LEAST, MOST = 20.0, 400.0  # microseconds that a message takes


class Job:
    """Workers that call one another in a simulated world, whose clocks show `offsets` more."""

    def __init__(self, offsets, drift=0.0):
        self.offsets, self.drift = offsets, drift
        self.random = random.Random(5)
        self.events = [[self.name(rank)] for rank in range(len(offsets))]
        self.truth = []  # (rank, time on the world's clock) of boxes, in order
        self.now, self.arrows = 0.0, 0

    def name(self, rank):
        return {"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"w{rank}"}}

    def clock(self, rank, time):
        return time * (1 + self.drift * rank) + self.offsets[rank]

    def box(self, rank, begin, end):
        self.truth.append((rank, begin))
        self.events[rank].append({"ph": "X", "name": "f", "cat": "call", "pid": rank, "tid": 1,
                                  "ts": self.clock(rank, begin), "dur": end - begin, "args": {}})

    def arrow(self, sender, sent, receiver, received):
        self.arrows += 1
        for phase, rank, time in (("s", sender, sent), ("f", receiver, received)):
            if rank is not None:
                at = self.clock(rank, time)
                self.events[rank].append({"ph": phase, "name": "call", "cat": "message", "pid": rank, "tid": 1,
                                          "id": hex(self.arrows), "ts": at, "args": {"passed": at}})

    def call(self, caller, callee):
        there, works, back = self.random.uniform(LEAST, MOST), 100.0, self.random.uniform(LEAST, 3 * MOST)
        begin = self.now
        arrived, left = begin + there, begin + there + works
        self.now = left + back + self.random.uniform(0, 100)
        self.box(caller, begin, left + back)
        self.box(callee, arrived, left)
        self.arrow(caller, begin, callee, arrived)
        self.arrow(callee, left, caller, left + back)

    def trace(self, rank, **about):
        data = {"format": "distgrad trace 1", "worker": f"w{rank}", "rank": rank, "dropped": 0,
                "wall_us": 1e15 - self.offsets[rank],
                "group": [f"w{i}/7" for i in range(len(self.offsets))]}
        return {"otherData": {**data, **about}, "traceEvents": self.events[rank]}


def run_merge(*arguments):
    return subprocess.run([sys.executable, ARGUMENTS.merge, *arguments], capture_output=True, text=True)


class Merge(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        return path

    def merge(self, *traces):
        """@return the merged trace, and what was said."""
        paths = [self.file(f"{i}.json", trace) for i, trace in enumerate(traces)]
        output = os.path.join(self.folder, "merged.json")
        done = run_merge("-o", output, *paths)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(output) as file:
            return json.load(file), done.stdout + done.stderr

    def refuse(self, *paths):
        done = run_merge("-o", os.path.join(self.folder, "merged.json"), *paths)
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("Traceback", done.stderr)
        return done.stderr

    def worst_error(self, job, merged):
        """How far a box is from where it truly was, as seen from the first worker's boxes."""
        boxes = [[e["ts"] for e in merged["traceEvents"] if e["ph"] == "X" and e["pid"] == rank]
                 for rank in range(len(job.offsets))]
        truth = [[time for rank, time in job.truth if rank == r] for r in range(len(job.offsets))]
        base = boxes[0][0] - truth[0][0]
        return [max((abs(b - t - base) for b, t in zip(boxes[r], truth[r])), default=0) for r in range(len(boxes))]

    def test_clocks_are_corrected_within_the_uncertainty_that_is_told(self):
        job = Job([5e6, 12345678.9, -987654.3, 4.2e9])
        for _ in range(100):
            job.call(0, 1)
            job.call(1, 2)
            job.call(3, 2)
        merged, _ = self.merge(*(job.trace(rank) for rank in range(4)))
        workers = merged["otherData"]["workers"]
        for worker, error, offset in zip(workers, self.worst_error(job, merged), job.offsets):
            self.assertTrue(worker["is_joined"])
            self.assertLessEqual(error, worker["uncertainty_us"] + 0.01)
            self.assertAlmostEqual(worker["clock_ahead_us"], offset - job.offsets[0],
                                   delta=worker["uncertainty_us"] + 0.01)
        self.assertEqual(workers[0]["uncertainty_us"], 0)
        self.assertLess(workers[1]["uncertainty_us"], 3 * LEAST)  # the fastest of many messages count
        self.assertGreater(workers[3]["uncertainty_us"], workers[1]["uncertainty_us"])

    def test_arrows_point_forward_in_time_and_have_two_ends(self):
        job = Job([0, -3e6])
        for _ in range(50):
            job.call(0, 1)
            job.call(1, 0)
        merged, said = self.merge(job.trace(0), job.trace(1))
        ends = collections.defaultdict(dict)
        for event in merged["traceEvents"]:
            if event["ph"] in "sf":
                ends[event["id"]][event["ph"]] = event["ts"]
        self.assertEqual(len(ends), 200)
        for arrow in ends.values():
            self.assertLess(arrow["s"], arrow["f"])
        self.assertEqual(min(e["ts"] for e in merged["traceEvents"] if "ts" in e), 0)
        self.assertIn("200 arrows", said)

    def test_the_way_with_the_least_uncertainty_is_taken(self):
        job = Job([0, 1e6, 2e6])
        job.call(0, 2)  # once: known badly
        for _ in range(200):
            job.call(0, 1)
            job.call(1, 2)
        merged, _ = self.merge(*(job.trace(rank) for rank in range(3)))
        self.assertLess(merged["otherData"]["workers"][2]["uncertainty_us"], 6 * LEAST)

    def test_an_arrow_with_one_end_is_left_out(self):
        job = Job([0, 100])
        job.call(0, 1)
        job.arrow(0, 10, None, None)
        merged, said = self.merge(job.trace(0), job.trace(1))
        self.assertEqual(sum(e["ph"] in "sf" for e in merged["traceEvents"]), 4)
        self.assertIn("1 arrows left out", said)

    def test_who_cannot_be_joined_is_placed_by_the_wall_clock_and_named(self):
        job = Job([0, 5e6, 9e6])
        job.call(0, 1)
        job.box(2, 40, 50)
        job.arrow(2, 45, 0, 200)  # one way only
        merged, said = self.merge(*(job.trace(rank) for rank in range(3)))
        self.assertIn("'w2' did not exchange messages", said)
        self.assertFalse(merged["otherData"]["workers"][2]["is_joined"])
        names = [e["args"]["name"] for e in merged["traceEvents"] if e["name"] == "process_name"]
        self.assertEqual(names, ["w0", "w1", "w2 (clock not joined)"])
        self.assertLess(self.worst_error(job, merged)[2], 0.01)  # these wall clocks are right

    def test_clocks_that_run_apart_are_told(self):
        job = Job([0, 0], drift=0.01)
        for _ in range(100):
            job.call(0, 1)
        _, said = self.merge(job.trace(0), job.trace(1))
        self.assertIn("the clocks of 'w0' and 'w1' ran apart", said)

    def test_what_is_missing_is_told(self):
        job = Job([0, 0, 0])
        job.call(0, 1)
        _, said = self.merge(job.trace(0, dropped=12), job.trace(1))
        self.assertIn("no room for 12 more events", said)
        self.assertIn("1 of 3 workers have no file here", said)

    def test_wrong_files_are_refused_with_the_reason(self):
        job = Job([0, 0])
        job.call(0, 1)
        first, second = self.file("a.json", job.trace(0)), self.file("b.json", job.trace(1))
        self.assertIn("No such file", self.refuse(first, os.path.join(self.folder, "none.json")))
        self.assertIn("no JSON", self.refuse(first, self.file("c.json", json.dumps(job.trace(1))[:-9])))
        for other in ("[1, 2]", '{"traceEvents": []}', "7"):
            self.assertIn("no trace that a worker", self.refuse(first, self.file("c.json", other)))
        self.assertIn("both of rank 0", self.refuse(first, self.file("c.json", job.trace(0))))
        self.assertIn("different runs", self.refuse(first, self.file("c.json", job.trace(1, group=["x", "y"]))))
        damaged = job.trace(1)
        damaged["traceEvents"].append({"ph": "s"})
        self.assertIn("damaged", self.refuse(first, self.file("c.json", damaged)))
        done = run_merge("-o", first, first, second)
        self.assertEqual(done.returncode, 1)
        self.assertIn("choose another --output", done.stderr)

    def test_three_processes_that_train_are_joined(self):
        if not ARGUMENTS.program:
            self.skipTest("no program was named")
        environment = dict(os.environ, DISTGRAD_TRACE=os.path.join(self.folder, "run.json"))
        subprocess.run([ARGUMENTS.demo, "--program", ARGUMENTS.program, "--", "--optimizer", "sgd"],
                       env=environment, check=True, stdout=subprocess.DEVNULL, timeout=250)
        output = os.path.join(self.folder, "merged.json")
        files = sorted(glob.glob(os.path.join(self.folder, "run.*.json")))
        self.assertEqual(len(files), 3)
        done = run_merge("-o", output, *files)
        print(done.stdout + done.stderr)
        self.assertEqual(done.returncode, 0)
        with open(output) as file:
            merged = json.load(file)
        self.assertEqual([w["name"] for w in merged["otherData"]["workers"]], ["trainer", "stage0", "stage1"])
        for worker in merged["otherData"]["workers"]:
            self.assertTrue(worker["is_joined"])
            self.assertEqual(worker["dropped"], 0)
        kinds = collections.Counter()
        ends = {}
        for event in merged["traceEvents"]:
            if event["ph"] in "sf":
                other = ends.setdefault(event["id"], event)
                if other is not event:
                    sender, receiver = (event, other) if event["ph"] == "s" else (other, event)
                    kinds[event["name"], sender["pid"], receiver["pid"]] += 1
        for joined in (("call", 0, 1), ("answer", 1, 0), ("call", 0, 2), ("answer", 2, 0),
                       ("gradient", 0, 2), ("gradient", 2, 0), ("gradient", 0, 1)):
            self.assertGreater(kinds[joined], 1000, (joined, kinds))
        passes = collections.Counter(e["args"]["pass"] for e in merged["traceEvents"]
                                     if e["ph"] == "X" and e["cat"] == "pass")
        self.assertEqual(set(passes.values()), {3})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--merge", required=True)
    parser.add_argument("--demo")
    parser.add_argument("--program")
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)
