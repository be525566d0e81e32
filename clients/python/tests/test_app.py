import os
import pathlib
import pickle
import sys
import tempfile
import unittest
from unittest import mock

from outlast import Outlast, OutlastError, UsageError, Worker, current_job
from outlast.app import CHILD_NAME, load


def app() -> Outlast:
    return Outlast("http://127.0.0.1:9", queue="mail")


class Handlers(unittest.TestCase):
    def test_arguments_are_sent_in_the_order_of_the_parameters(self):
        @app().job("t", retries=2)
        def send(to, body="none", *, urgent=False):
            return (to, body, urgent)

        job = send.job("a", urgent=True)
        self.assertEqual(job.args, ["a", "none", {"urgent": True}])
        self.assertEqual(job.wire()["options"], {"queue": "mail", "retry": {"max_attempts": 3}})
        args, kwargs = send.from_wire(job.args)
        self.assertEqual(send(*args, **kwargs), ("a", "none", True))

    def test_an_object_is_an_argument_where_nothing_is_given_by_name_only(self):
        @app().job("t")
        def send(letter):
            return letter

        self.assertEqual(send.from_wire([{"to": "a"}]), ([{"to": "a"}], {}))

    def test_arguments_that_do_not_fit_are_refused_where_they_are_given(self):
        @app().job("t")
        def send(to):
            return to

        with self.assertRaises(UsageError):
            send.enqueue("a", "b")
        with self.assertRaises(TypeError):
            send.from_wire([])

    def test_a_task_with_other_options_leaves_the_first_as_it_was(self):
        @app().job("t", queue="a")
        def send():
            return None

        self.assertEqual(send.using(queue="b").job().options.queue, "b")
        self.assertEqual(send.job().options.queue, "a")

    def test_types_are_named_after_functions_and_may_not_be_used_twice(self):
        one = app()

        @one.job
        def send():
            return None

        self.assertTrue(send.type.endswith("send"), send.type)
        with self.assertRaises(UsageError):
            one.job(send.type)(lambda: None)

    def test_a_worker_takes_jobs_from_the_queues_of_its_handlers(self):
        one = app()
        one.job("a")(lambda: None)
        one.job("b", queue="reports")(lambda: None)
        self.assertEqual(Worker(one).queues, ["mail", "reports"])

    def test_the_grace_is_what_the_environment_says(self):
        one = app()
        one.job("a")(lambda: None)
        names = ["OUTLAST_GRACE", "OJS_GRACE_PERIOD", "OJS_SHUTDOWN_GRACE_PERIOD"]
        clear = {name: "" for name in names}
        for given, grace in (
            ({}, 30),
            ({"OJS_SHUTDOWN_GRACE_PERIOD": "7"}, 7),
            ({"OJS_SHUTDOWN_GRACE_PERIOD": "7", "OJS_GRACE_PERIOD": "1.5"}, 1.5),
            ({"OUTLAST_GRACE": "0", "OJS_GRACE_PERIOD": "7"}, 0),
            ({"OJS_GRACE_PERIOD": "45s"}, 45),
            ({"OJS_GRACE_PERIOD": "2m"}, 120),
            ({"OJS_GRACE_PERIOD": "250ms"}, 0.25),
        ):
            with mock.patch.dict(os.environ, {**clear, **given}):
                self.assertEqual(Worker(one).grace, grace)
        for wrong in ("soon", "-1", "1 s"):
            with mock.patch.dict(os.environ, {**clear, "OJS_GRACE_PERIOD": wrong}):
                with self.assertRaises(UsageError):
                    Worker(one)

    def test_a_worker_that_cannot_work_is_refused(self):
        one = app()
        with self.assertRaises(UsageError):
            Worker(one)
        one.job("a")(lambda: None)
        for wrong in ({"concurrency": 0}, {"run_in": "fiber"}, {"lease": 0.5}, {"grace": -1}):
            with self.assertRaises(UsageError):
                Worker(one, **wrong)

    def test_apps_are_found_by_name_or_as_the_only_one(self):
        self.assertIs(load("tests.handlers:app"), load("tests.handlers:"))
        for wrong in ("tests.handlers:nothing", "tests.nowhere:app"):
            with self.assertRaises(UsageError):
                load(wrong)

    def test_a_program_in_a_file_finds_what_lies_beside_it_and_can_be_pickled(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "beside_it.py").write_text("TYPE = 'shout'\n")
            program = pathlib.Path(folder, "program.py")
            program.write_text(
                "import beside_it\n"
                "from outlast import Outlast\n"
                "app = Outlast('http://127.0.0.1:9')\n"
                "def upper(text): return text.upper()\n"
                "app.job(beside_it.TYPE)(upper)\n"
            )
            before = list(sys.path)
            self.addCleanup(sys.modules.pop, CHILD_NAME, None)
            self.addCleanup(sys.path.__setitem__, slice(None), before)
            upper = load(str(program)).tasks["shout"].function
            self.assertIs(pickle.loads(pickle.dumps(upper)), upper)
            self.assertEqual(sys.path.count(folder), 1)

    def test_there_is_no_job_outside_of_handlers(self):
        with self.assertRaises(OutlastError):
            current_job()
