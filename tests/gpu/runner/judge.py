"""What the run of a check means. Strict: what was not seen to be right is a failure."""
import collections
import dataclasses
import re

from . import cases, output, process

OK, FAILED, NOT_RUN = "ok", "FAILED", "not run"
NO_DRIVER = 2  # exit code of driver_probe where there is none
FINDINGS = 9   # exit code of compute-sanitizer when it has any


@dataclasses.dataclass
class Result:
    check: cases.Check
    verdict: str
    errors: list
    wrong: str = ""
    seconds: float = 0
    libraries: tuple = ()
    rows: list = dataclasses.field(default_factory=list)
    outcome: process.Outcome | None = None
    notes: list = dataclasses.field(default_factory=list)

    def library_text(self):
        return " and ".join(str(library) for library in self.libraries) or "none mapped"


def not_run(check, why):
    return Result(check, NOT_RUN, [why])


def judge(check, outcome, expected, hopper):
    """`expected`: the library that the check's processes must have mapped, or nothing for a program that links none."""
    libraries = tuple(sorted(set().union(*outcome.mapped.values()), key=str)) if outcome.mapped else ()
    result = Result(check, FAILED, [], "", outcome.seconds, libraries, [], outcome)
    if outcome.timed_out:
        result.errors.append(f"hangs: ended after {outcome.seconds:.0f} s")
    elif check.tool and outcome.exit_code == FINDINGS:
        result.errors.append(f"{check.tool} has findings")
    elif outcome.exit_code != 0:
        result.errors.append(ending(outcome.exit_code))
    if outcome.exit_code is None:
        result.errors.append("its processes cannot be killed")
    if outcome.left_behind:
        result.errors.append(f"{len(outcome.left_behind)} processes outlived it")
    result.errors += wrong_library(check, outcome, expected)
    if check.is_nccl_test():
        read_rows(check, outcome, hopper, result)
        compare_choices(check, outcome, result)
        if check.logged and not re.search(check.logged, outcome.log):
            result.errors.append(f"the log does not tell: {check.logged}")
    elif check.program == "check":
        read_counts(outcome, result)
    elif check.least:
        read_cases(check, outcome, result)
    elif check.program == "driver_probe" and outcome.exit_code == NO_DRIVER and not outcome.timed_out:
        result.verdict, result.errors = NOT_RUN, ["no CUDA driver"]
        return result
    if result.verdict == NOT_RUN:
        return result
    if result.errors and (told := output.trouble(outcome.log + outcome.output)):
        result.errors.insert(0, told)
    if check.tool and not re.search(r"(ERROR SUMMARY|RACECHECK SUMMARY):", outcome.output):
        result.errors.append("compute-sanitizer gave no summary")
    result.verdict = FAILED if result.errors else OK
    return result


def ending(code):
    if code is None:
        return "did not end"
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def wrong_library(check, outcome, expected):
    if expected is None:
        return ["maps a libnccl, and should not"] if outcome.mapped else []
    errors = []
    processes = check.gpus if check.mode == "mpi" else 1
    if check.program == "check":  # it judges what its programs map; PyTorch maps the file of its wheel beside the one that it uses
        return [] if expected in set().union(*outcome.mapped.values()) else ["no process has mapped the library under test"]
    if len(outcome.mapped) < processes:  # more: a driver may start helpers, which are copies of their parent until they run
        errors.append(f"libnccl was seen in {len(outcome.mapped)} processes, not in {processes}")
    if foreign := {str(library) for mapped in outcome.mapped.values() for library in mapped if library != expected}:
        errors.append(f"not the library under test: {', '.join(sorted(foreign))}")
    return errors


def read_counts(outcome, result):
    """Of tests/gpu/check."""
    if not (said := re.search(r"^check: (\d+) passed, (\d+) failed, (\d+) skipped$", outcome.output, re.MULTILINE)):
        result.errors.append("no closing line")
        return
    passed, failed, skipped = map(int, said.groups())
    result.wrong = f"{failed} of {passed + failed}"
    if skipped and not passed and not failed and not outcome.timed_out and not outcome.left_behind:
        result.verdict, result.errors = NOT_RUN, ["skipped: " + "; ".join(re.findall(r"^skip\s+(.*)$", outcome.output, re.MULTILINE))]
    elif not passed:
        result.errors.append("nothing has passed")
    elif skipped:
        result.notes.append(f"{skipped} skipped")


def read_cases(check, outcome, result):
    """Of gpu_probe verify."""
    if not (said := re.search(r"(\d+) of (\d+) cases, (\d+) failed$", outcome.output, re.MULTILINE)):
        result.errors.append("no closing line")
        return
    done, there, failed = map(int, said.groups())
    result.wrong = f"{failed} of {done}"
    if failed:
        result.errors.append(f"{failed} cases failed")
    if done < min(check.least, there):
        result.errors.append(f"{done} of {there} cases: {check.least} at least were expected")


def read_rows(check, outcome, hopper, result):
    out = output.parse(outcome.output)
    result.rows, errors = out.rows, result.errors
    result.wrong = f"{out.wrong:g} in {len(out.rows)} rows"
    if out.malformed:
        errors.append(f"{len(out.malformed)} rows cut off, the last: {out.malformed[-1].strip()[:60]}")
    if out.reduced_to is not None:
        errors.append(f"sizes end at {out.reduced_to} B: too little memory")
    errors += missing_rows(check, out, hopper)
    if out.wrong:
        first = next(row for row in out.rows if any(row.wrong))
        errors.append(f"wrong elements, first at {first.size} B {first.type} {first.op} root {first.root}")
    if out.out_of_bounds is None:
        errors.append("no closing line")
    elif out.out_of_bounds or out.bounds_verdict != "OK":
        errors.append(f"out of bounds values: {out.out_of_bounds} {out.bounds_verdict}")
    places = (0,) if check.program in cases.UNCHECKED_IN_PLACE else (0, 1)
    if blind := sum(row.wrong[place] is None for row in out.rows for place in places):
        errors.append(f"{blind} results were not checked")


def compare_choices(check, outcome, result):
    """Whether what was forced is what ran, as far as the log tells."""
    names = ("TUTTI_ALGO", "NCCL_ALGO"), ("NCCL_PROTO",)
    for what, variables, taken in zip(("algorithm", "protocol"), names, output.choices(outcome.log)):
        wanted = next((check.environment[v].lower() for v in variables if v in check.environment), None)
        if wanted is None:
            continue
        if not taken:
            result.errors.append(f"the log names no {what}")
        elif others := {name.lower() for name in taken} - {wanted}:
            result.errors.append(f"took {what} {', '.join(sorted(others))}, not {wanted}")


def missing_rows(check, out, hopper):
    counts = collections.Counter((row.type, row.op if check.program in cases.WITH_OPS else "", row.root) for row in out.rows)
    expected, sizes = check.combinations(hopper), check.sizes.count() * check.cycles
    errors = []
    if absent := expected - counts.keys():
        errors.append(f"{len(absent)} of {len(expected)} cases are missing, such as {' '.join(map(str, min(absent)))}")
    if strange := counts.keys() - expected:
        errors.append(f"unexpected cases, such as {' '.join(map(str, min(strange)))}")
    if short := [key for key in expected & counts.keys() if counts[key] != sizes]:
        errors.append(f"{counts[short[0]]} rows of sizes instead of {sizes}" if check.cycles > 1 else f"{counts[short[0]]} sizes instead of {sizes}")
    return errors
