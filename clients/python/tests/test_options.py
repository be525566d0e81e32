import unittest
from datetime import datetime, timedelta, timezone

from outlast import Graph, NewJob, Options, Retry, Unique, UsageError, batch, chain, group


class OptionsOnTheWire(unittest.TestCase):
    def test_only_what_was_said_is_sent(self):
        self.assertEqual(NewJob("t", [1]).wire(), {"type": "t", "args": [1]})

    def test_every_option_has_its_name(self):
        options = Options.of(
            {
                "queue": "q",
                "priority": -5,
                "delay": 1.5,
                "timeout": timedelta(seconds=2),
                "expires_after": 90,
                "retries": 3,
                "retry": Retry(
                    first_pause=1,
                    longest_pause=9,
                    factor=1.5,
                    strategy="linear",
                    jitter=False,
                    never_for=["ValueError"],
                    dead_letter=True,
                ),
                "unique": Unique(
                    args_keys=["customer"],
                    by_queue=True,
                    meta_keys=["region"],
                    period=90,
                    states=["available"],
                    on_conflict="ignore",
                ),
                "meta": {"trace": "abc"},
                "keys": {"tenant": 42},
                "requires": "gpu=true",
                "prefers": "zone=a",
                "tags": ["x"],
                "more": {"visibility_timeout_ms": 9000},
            }
        )
        self.assertEqual(
            NewJob("t", (1, "two"), options).wire(),
            {
                "type": "t",
                "args": [1, "two"],
                "meta": {"trace": "abc"},
                "options": {
                    "queue": "q",
                    "priority": -5,
                    "delay_ms": 1500,
                    "timeout_ms": 2000,
                    "expires_at": "+PT90S",
                    "retry": {
                        "max_attempts": 4,
                        "initial_interval_ms": 1000,
                        "max_interval_ms": 9000,
                        "backoff_coefficient": 1.5,
                        "backoff_strategy": "linear",
                        "jitter": False,
                        "non_retryable_errors": ["ValueError"],
                        "on_exhaustion": "dead_letter",
                    },
                    "unique": {
                        "keys": ["type", "args", "queue", "meta"],
                        "args_keys": ["customer"],
                        "meta_keys": ["region"],
                        "period": "PT90S",
                        "states": ["available"],
                        "on_conflict": "ignore",
                    },
                    "keys": {"tenant": "42"},
                    "requires": "gpu=true",
                    "prefers": "zone=a",
                    "tags": ["x"],
                    "visibility_timeout_ms": 9000,
                },
            },
        )

    def test_lengths_of_time_are_written_with_all_their_digits(self):
        for length, text in (
            (2_592_000, "PT2592000S"),
            (1_234_567.25, "PT1234567.25S"),
            (timedelta(microseconds=1), "PT0.000001S"),
            (1e16, "PT10000000000000000S"),
            (0.1, "PT0.1S"),
            (0, "PT0S"),
        ):
            self.assertEqual(Unique(period=length).wire()["period"], text)
            sent = Options(expires_after=length).wire()["expires_at"]
            self.assertEqual(sent, f"+{text}")

    def test_the_last_word_about_the_time_counts(self):
        at = datetime(2030, 1, 1, tzinfo=timezone.utc)
        job = NewJob("t", [], Options.of({"delay": 1})).using(at=at)
        self.assertEqual(job.wire()["options"], {"scheduled_at": "2030-01-01T00:00:00Z"})
        self.assertEqual(job.using(delay=2).wire()["options"], {"delay_ms": 2000})

    def test_slips_are_refused_by_name_before_anything_is_sent(self):
        for wrong, word in (
            (lambda: Options.of({"qeue": "q"}), "qeue"),
            (lambda: Options.of({"retry": 3}), "retries"),
            (lambda: Options.of({"retries": -1}).wire(), "retries"),
            (lambda: Options.of({"delay": -1}).wire(), "-1"),
            (lambda: Options.of({"at": datetime(2030, 1, 1)}).wire(), "time zone"),
            (lambda: NewJob("t", "ab").wire(), "list"),
            (lambda: batch(NewJob("t")), "callback"),
            (lambda: Graph().step("a", NewJob("t"), "b"), "'b'"),
        ):
            with self.assertRaises(UsageError) as raised:
                wrong()
            self.assertIn(word, str(raised.exception))

    def test_workflows_have_the_forms_of_the_standard(self):
        one, two = NewJob("a", [1]), NewJob("b")
        job, other = {"type": "a", "args": [1]}, {"type": "b", "args": []}
        self.assertEqual(
            chain(one, group(two, two)).wire(),
            {"type": "chain", "steps": [job, {"type": "group", "jobs": [other, other]}]},
        )
        self.assertEqual(
            batch(one, on_failure=two).wire(),
            {"type": "batch", "jobs": [job], "callbacks": {"on_failure": other}},
        )
        self.assertEqual(
            Graph("n").step("x", one).step("y", two, "x").wire(),
            {"name": "n", "steps": [{"id": "x", **job}, {"id": "y", **other, "depends_on": ["x"]}]},
        )
