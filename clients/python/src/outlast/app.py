"""`Outlast`: handlers by the type of their jobs, a producer, and a worker in one object."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from types import ModuleType
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Generic,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
    Union,
    overload,
)

from .client import Client
from .errors import UsageError
from .jobs import Job
from .options import NewJob, Options

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")
else:
    # Python 3.9 has no ParamSpec, and nothing here needs one at run time.
    P = TypeVar("P")
R = TypeVar("R")

#: Where handlers run.
PLACES = ("thread", "process")
#: The name that a script has when a process of the worker loads it.
CHILD_NAME = "__outlast_worker__"


class Task(Generic[P, R]):
    """A handler and the type of its jobs. Calling it runs the function here, as ever."""

    def __init__(
        self,
        app: "Outlast",
        type: str,
        function: "Callable[P, R]",
        options: Options,
        run_in: Optional[str],
    ) -> None:
        self.app, self.type, self.function, self.options = app, type, function, options
        self.run_in = run_in
        self.is_async = inspect.iscoroutinefunction(function)
        self._signature = inspect.signature(function)
        kinds = [parameter.kind for parameter in self._signature.parameters.values()]
        # What can only be given by name is sent as one object, after the others.
        self.has_named = (
            inspect.Parameter.KEYWORD_ONLY in kinds or inspect.Parameter.VAR_KEYWORD in kinds
        )
        self.__doc__, self.__name__ = function.__doc__, getattr(function, "__name__", type)
        self.__wrapped__ = function

    def __call__(self, *args: "P.args", **kwargs: "P.kwargs") -> R:
        return self.function(*args, **kwargs)

    def job(self, *args: "P.args", **kwargs: "P.kwargs") -> NewJob:
        """The job for these arguments, not stored: for `enqueue_all` and workflows."""
        return NewJob(self.type, self.to_wire(args, kwargs), self.options)

    def enqueue(self, *args: "P.args", **kwargs: "P.kwargs") -> Job:
        """Stores a job for these arguments."""
        return self.app.client.enqueue_job(self.job(*args, **kwargs))

    def using(self, **options: Any) -> "Task[P, R]":
        """The same task with other options: `send.using(delay=60).enqueue(…)`."""
        options = dict(options)
        return Task(
            self.app, self.type, self.function, self.options.with_these(options), self.run_in
        )

    def to_wire(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> List[Any]:
        """The arguments as a list in the order of the parameters."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(f"{self.type}: {error}") from error
        # A default between arguments that are given has to be sent, too.
        bound.apply_defaults()
        sent = list(bound.args)
        if self.has_named:
            sent.append(dict(bound.kwargs))
        return sent

    def from_wire(self, args: Sequence[Any]) -> Tuple[List[Any], Dict[str, Any]]:
        """What the function is called with. Raises `TypeError` if that does not fit."""
        positional, named = list(args), {}
        if self.has_named and positional and isinstance(positional[-1], dict):
            named = positional.pop()
        self._signature.bind(*positional, **named)
        return positional, named


class Outlast:
    """Handlers, and the server that their jobs are on.

    The parameters are those of `Client`. `queue` is where jobs go whose handler names no other, and
    from where the worker takes jobs, `default` if it is not given.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        *,
        queue: str = "default",
        token: Optional[str] = None,
        token_file: Optional[str] = None,
        ca_file: Optional[str] = None,
        certificate: Optional[Tuple[str, str]] = None,
        tenant: Optional[str] = None,
    ) -> None:
        self.queue = queue
        self._given: Dict[str, Any] = {
            "url": url,
            "token": token,
            "token_file": token_file,
            "ca_file": ca_file,
            "certificate": certificate,
            "tenant": tenant,
        }
        self._client: Optional[Client] = None
        self.tasks: Dict[str, Task[Any, Any]] = {}

    @property
    def client(self) -> Client:
        """The client, made when it is first used."""
        if self._client is None:
            self._client = Client(**self._given)
        return self._client

    def at(self, url: str) -> None:
        """Uses another server than the one that was given."""
        self._given["url"] = url
        self._client = None

    @overload
    def job(self, type: "Callable[P, R]") -> "Task[P, R]": ...

    @overload
    def job(
        self, type: Optional[str] = None, *, run_in: Optional[str] = None, **options: Any
    ) -> "Callable[[Callable[P, R]], Task[P, R]]": ...

    def job(
        self,
        type: "Union[None, str, Callable[..., Any]]" = None,
        *,
        run_in: Optional[str] = None,
        **options: Any,
    ) -> Any:
        """Makes a function the handler of a type of jobs.

        The type is `module.function` if it is not given. `options` are those of `Options`, for
        every job of this type: `@app.job("email.send", retries=5, queue="mail")`. `run_in` is
        `thread` or `process`, for this handler only; `async def` runs on an event loop.
        """
        if callable(type):
            return self._add(type, None, run_in, {})

        def decorate(function: "Callable[P, R]") -> "Task[P, R]":
            return self._add(function, type, run_in, options)

        return decorate

    def _add(
        self,
        function: "Callable[P, R]",
        type: Optional[str],
        run_in: Optional[str],
        options: Mapping[str, Any],
    ) -> "Task[P, R]":
        if run_in is not None and run_in not in PLACES:
            raise UsageError(f"`run_in` is one of {', '.join(PLACES)}, not {run_in!r}")
        if type is None:
            module = function.__module__
            if module in ("__main__", CHILD_NAME):
                raise UsageError(
                    'a handler of a script needs a type, such as @app.job("mail.send")'
                )
            type = f"{module}.{function.__qualname__}".replace("<locals>.", "")
        if type in self.tasks:
            raise UsageError(f"there are two handlers for {type!r}")
        chosen = Options(queue=self.queue).with_these(options)
        task: Task[P, R] = Task(self, type, function, chosen, run_in)
        self.tasks[type] = task
        return task

    def enqueue(self, type: str, args: Sequence[Any] = (), **options: Any) -> Job:
        """Stores a job of any type, such as one whose handler is in another program."""
        options.setdefault("queue", self.queue)
        return self.client.enqueue(type, args, **options)

    def queues(self) -> List[str]:
        """The queues of the handlers."""
        named = [task.options.queue or self.queue for task in self.tasks.values()]
        return list(dict.fromkeys(named or [self.queue]))

    def run(self, concurrency: int = 10, **settings: Any) -> int:
        """Runs jobs until SIGTERM or SIGINT, and then what still runs. Returns the exit code.

        `settings` are those of `Worker`.
        """
        from .worker import Worker

        return Worker(self, concurrency=concurrency, **settings).run()


def reference_of_main() -> str:
    """How another process finds the app of the program that runs: `module:` or a path."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return f"{spec.name}:"
    path: Optional[str] = getattr(main, "__file__", None)
    if path is None:
        raise UsageError("handlers in processes need a program in a file")
    return os.path.abspath(path)


def module_of(path: str) -> ModuleType:
    """Runs a script as a module that can be imported, which pickled functions of it need."""
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        # Where Python finds what lies beside a script.
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(CHILD_NAME, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no program")
    module = importlib.util.module_from_spec(spec)
    sys.modules[CHILD_NAME] = module
    spec.loader.exec_module(module)
    return module


def load(reference: str) -> Outlast:
    """Finds an app: `module:name`, `module:` or the path of a script."""
    if reference.endswith(".py"):
        found: Mapping[str, Any] = vars(module_of(reference))
        name, where = "", reference
    else:
        where, _colon, name = reference.partition(":")
        if "" not in sys.path:
            sys.path.insert(0, "")
        try:
            found = vars(importlib.import_module(where))
        except ModuleNotFoundError as error:
            if error.name is not None and where.split(".")[0] == error.name.split(".")[0]:
                raise UsageError(f"there is no module {error.name!r} here") from error
            raise
    if name:
        app = found.get(name)
        if not isinstance(app, Outlast):
            raise UsageError(f"{where} has no Outlast named {name!r}")
        return app
    apps = [value for value in found.values() if isinstance(value, Outlast)]
    if len({id(app) for app in apps}) != 1:
        count = "no" if not apps else "more than one"
        raise UsageError(f"{where} has {count} Outlast: write {where}:NAME")
    return apps[0]
