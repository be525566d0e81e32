# The warm process of Python attempts. It imports modules once, and is then forked for each attempt.
#
#   shim --link, descriptors, namespaces--> this process --fork--> middle --fork--> the attempt
#                                                                  (exits at once)
#
# The attempt is born inside the PID namespace of its shim. When the one in the middle has exited, the
# kernel makes the shim its parent: the shim is process 1 there. So the shim waits for it and kills it
# as if it had executed it, and nothing of an attempt depends on this process.
#
# What an attempt is to do, its variables above all, is read from its link, after the fork. It runs
# nothing of the action until the shim has said so.
#
# This process must stay at one thread, open nothing, and keep nothing of a request. Standard library
# only, Python 3.9 or later.

import _locale
import _signal
import _socket
import ctypes
import gc
import os
import resource
import sys

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_CAP_AMBIENT = 1, 4, 24, 47
PR_CAP_AMBIENT_LOWER = 3
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
CAPABILITY_VERSION_3 = 0x20080522
# What the worker takes from every process of a job in a PID namespace: to look into the memory of
# others (ptrace, perfmon, bpf, checkpoint_restore), and to mount (sys_admin).
GIVEN_UP = (19, 38, 39, 40, 21)
MOST_DESCRIPTORS = 32
MESSAGE_MAX = 1 << 18
ANSWER_MAX = 1000
# How long what ends an archive may be.
ARCHIVE_END = 22 + (1 << 16)

libc = ctypes.CDLL(None, use_errno=True)


class Unfit(Exception):
    """Why attempts cannot be forked from this process."""


def call(name, *numbers):
    arguments = [ctypes.c_ulong(number) for number in numbers]
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (name, os.strerror(number)))


def prctl(option, value, third=0):
    call("prctl", option, value, third, 0, 0)


def setns(descriptor, kind):
    call("setns", descriptor, kind)


# --- what an import must leave as it is ---


def described(descriptor):
    try:
        return os.readlink("/proc/self/fd/%d" % descriptor)
    except OSError:
        return None


def open_descriptors():
    found = {number: described(number) for number in map(int, os.listdir("/proc/self/fd"))}
    # The one with which the folder was listed is closed by now.
    return {number: what for number, what in found.items() if what is not None}


def umask():
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def standing():
    """What attempts take over from this process: an import that changes it would change them all."""
    limits = sorted(name for name in vars(resource) if name.startswith("RLIMIT_"))
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return {
        "its user or groups": (os.getresuid(), os.getresgid(), sorted(os.getgroups())),
        "the mask of new files": umask(),
        "its limits": [resource.getrlimit(getattr(resource, name)) for name in limits],
        "its priority": os.getpriority(os.PRIO_PROCESS, 0),
        "its processors": os.sched_getaffinity(0),
        "its session": (os.getsid(0), os.getpgid(0)),
        "the signals that it blocks": _signal.pthread_sigmask(_signal.SIG_BLOCK, ()),
        "the locale": _locale.setlocale(_locale.LC_ALL, None),
        "environment variables": dict(os.environ),
        "the standard streams": [
            (id(it), it.encoding, it.errors, it.line_buffering, it.closed) for it in streams
        ],
    }


def shared_memory():
    """A mapping that attempts would share and could write to."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split(None, 5)
            if fields[1][1] == "w" and fields[1][3] == "s":
                return fields[5].strip() if len(fields) > 5 else "unnamed"
    return None


def children():
    try:
        with open("/proc/thread-self/children") as listed:
            return listed.read().split()
    except OSError:
        # This kernel does not say.
        return []


def check(before, opened_before):
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise Unfit("importing them starts threads (%d run), which a fork would lose" % threads)
    if children():
        raise Unfit("importing them starts processes")
    after = standing()
    for what, was in before.items():
        if after[what] != was:
            raise Unfit("importing them changes " + what + named_changes(was, after[what]))
    opened = sorted(what for number, what in open_descriptors().items()
                    if opened_before.get(number) != what)
    if opened:
        raise Unfit("importing them leaves files open, which attempts would share: "
                    + ", ".join(opened[:3]))
    shared = shared_memory()
    if shared is not None:
        raise Unfit("importing them makes memory that attempts would share: " + shared)


def named_changes(was, now):
    if not isinstance(was, dict):
        return ""
    names = sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
    return ": " + ", ".join(names[:3])


# --- how this process is listed ---


class Listed:
    """The memory in which the kernel finds the arguments of this process when it lists processes."""

    def __init__(self):
        self.start = self.length = 0
        try:
            with open("/proc/self/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
            # The 48th and 49th field of all.
            start, end = int(fields[45]), int(fields[46])
            if 0 < start < end:
                self.start, self.length = start, end - start
        except (OSError, ValueError, IndexError):
            pass

    def show(self, arguments):
        text = b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
        if self.length > 1:
            text = text[: self.length - 1]
            ctypes.memset(self.start, 0, self.length)
            ctypes.memmove(self.start, text, len(text))


# --- importing ---


def first_variables():
    """The variables with which this process was executed."""
    with open("/proc/self/environ", "rb") as environ:
        pairs = [line.partition(b"=") for line in environ.read().split(b"\0") if line]
    return {name: value for name, _, value in pairs}


class Parent:
    def __init__(self):
        # The interpreter adds this one by itself in the plain C locale, and so it does in a
        # process that is executed.
        coerced = os.environb.get(b"LC_CTYPE")
        self.coerced = None if b"LC_CTYPE" in first_variables() else coerced
        # Nothing in the memory of a process that others could read or change may reach attempts.
        prctl(PR_SET_DUMPABLE, 0)
        self.control = os.dup(0)
        silent, end = os.pipe()
        os.close(end)
        os.dup2(silent, 0)
        os.close(silent)
        self.program = getattr(sys, "orig_argv", [sys.executable])[0]
        self.listed = Listed()
        self.main = {name: value for name, value in vars(sys.modules["__main__"]).items()
                     if name != "os"}

    def prepare(self):
        message = os.read(self.control, MESSAGE_MAX).decode().split("\0")
        self.listed.show(["outlast", "warm", message[0]])
        self.options, folder, modules = message[1].split("\n"), message[2], message[3:]
        # As for a script that is executed: imports are looked for beside it first.
        if not getattr(sys.flags, "safe_path", False):
            sys.path[0] = folder
        opened, before = open_descriptors(), standing()
        for name in modules:
            try:
                __import__(name)
            except BaseException as error:
                raise Unfit("cannot import %s: %s: %s" % (name, type(error).__name__, error))
        sys.stdout.flush()
        sys.stderr.flush()
        libc.fflush(None)
        check(before, opened)
        # Attempts have what the modules have set, as if they had imported them.
        self.heeds_children = _signal.getsignal(_signal.SIGCHLD)
        if self.heeds_children is None:
            raise Unfit("importing them sets a handler of SIGCHLD that is not Python's")

    def settle(self):
        # What it would print from here on has no reader.
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.close(null)
        self.own = {kind: os.stat("/proc/self/ns/" + kind) for kind in ("user", "mnt")}
        self.own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY)
        # Garbage is collected now, and what is left is not looked at again: a collection writes to each
        # object, and a page that is written to is not shared any more.
        gc.collect()
        gc.freeze()
        # The processes in the middle are not waited for: one that has ended and is kept would hold up the
        # proof that its namespace is empty.
        _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)

    def is_own(self, kind, descriptor):
        return os.path.samestat(os.fstat(descriptor), self.own[kind])

    def serve(self):
        """Forks on request. Returns in an attempt, and never in this process."""
        control = _socket.socket(fileno=self.control)
        room = _socket.CMSG_SPACE(4 * MOST_DESCRIPTORS)
        while True:
            data, ancillary, _, _ = control.recvmsg(64, room, _socket.MSG_CMSG_CLOEXEC)
            if not data:
                os._exit(0)
            given = descriptors(ancillary)
            if len(os.listdir("/proc/self/task")) != 1:
                # A hook that modules have registered for forks has started one.
                os._exit(1)
            try:
                if len(given) >= 7 and self.fork_into(given[4], given[5]):
                    control.detach()
                    return Attempt(self, given)
            except OSError:
                # The host has no process to spare, or the shim is gone. It sees its link close.
                pass
            for descriptor in given:
                os.close(descriptor)

    def fork_into(self, user, pids):
        """Forks into a PID namespace; true in the attempt."""
        if not self.is_own("user", user):
            return self.fork_into_users(user, pids)
        is_attempt = False
        setns(pids, CLONE_NEWPID)
        try:
            is_attempt = self.fork_twice()
        finally:
            if not is_attempt:
                self.come_back()
        return is_attempt

    def fork_into_users(self, user, pids):
        """The same where a user namespace is around it. That is not left again, so another process
        enters it."""
        if os.fork():
            return False
        try:
            setns(user, CLONE_NEWUSER)
            setns(pids, CLONE_NEWPID)
            if self.fork_twice():
                return True
            # The one in the middle is a child of this process, and must not be without a parent.
            os.waitpid(-1, 0)
        except BaseException:
            pass
        os._exit(0)

    def come_back(self):
        try:
            setns(self.own_pids, CLONE_NEWPID)
        except OSError:
            # What it forked next would be in a foreign namespace.
            os._exit(1)

    def fork_twice(self):
        """True in the attempt. The one in the middle does not return."""
        if os.fork():
            return False
        try:
            # How the attempt ends is kept for the shim, even if it ends first. A handler of a module
            # could wait for it here.
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
            if not os.fork():
                _signal.signal(_signal.SIGCHLD, self.heeds_children)
                return True
        except BaseException:
            pass
        os._exit(0)


def descriptors(ancillary):
    found = []
    for level, kind, data in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            whole = len(data) - len(data) % 4
            found += [int.from_bytes(data[at : at + 4], sys.byteorder)
                      for at in range(0, whole, 4)]
    return found


# --- an attempt ---


class Attempt:
    def __init__(self, parent, given):
        self.parent = parent
        self.link, self.stdio, self.mounts = given[0], given[1:4], given[6]
        self.groups = given[7:]

    def arrange(self):
        """Becomes what the shim would have executed. Whatever fails here has run nothing."""
        # The mounts come last of what needs rights, and the rights are given up after them.
        os.setsid()
        for group in self.groups:
            os.write(group, b"0")
        if not self.parent.is_own("mnt", self.mounts):
            setns(self.mounts, CLONE_NEWNS)
        self.enters_users = not os.path.samestat(
            os.stat("/proc/self/ns/user"), self.parent.own["user"])
        for place, descriptor in enumerate(self.stdio):
            os.dup2(descriptor, place)
        self.close_the_rest()
        cwd, script, *variables = os.read(self.link, MESSAGE_MAX).split(b"\0")
        os.chdir(cwd)
        with open(script, "rb") as file:
            self.source = file.read()
        if script.endswith(b".pyc") or b"PK\5\6" in self.source[-ARCHIVE_END:]:
            raise Unfit("it is no plain script")
        self.script = os.fsdecode(script)
        self.await_shim()
        prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
        give_up_capabilities(self.enters_users and os.geteuid() != 0)
        prctl(PR_SET_DUMPABLE, 1)
        self.set_variables(variables)
        refresh_modules()
        self.take_names()

    def close_the_rest(self):
        for name in os.listdir("/proc/self/fd"):
            number = int(name)
            if number > 2 and number != self.link:
                try:
                    os.close(number)
                except OSError:
                    # That of the list itself.
                    pass

    def await_shim(self):
        # The one in the middle is on its way out.
        while os.getppid() != 1:
            os.sched_yield()

    def set_variables(self, variables):
        os.environ.clear()
        for variable in variables:
            name, _, value = variable.partition(b"=")
            os.environb[name] = value
        coerced = self.parent.coerced
        if coerced is not None and b"LC_CTYPE" not in os.environb:
            os.environb[b"LC_CTYPE"] = coerced

    def take_names(self):
        arguments = [self.parent.program, *self.parent.options, self.script]
        self.parent.listed.show(arguments)
        sys.argv[:] = [self.script]
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[:] = arguments

    def start(self):
        """Says that it is ready, and returns the namespace of the script when it may run."""
        os.write(self.link, b"ready %d" % os.getpid())
        if os.read(self.link, 8) != b"go":
            os._exit(1)
        os.close(self.link)
        main = type(sys)("__main__")
        loader = sys.modules["_frozen_importlib_external"].SourceFileLoader
        vars(main).update(self.parent.main, __file__=self.script, __cached__=None,
                          __loader__=loader("__main__", self.script))
        if "__annotations__" in vars(main):
            main.__annotations__ = {}
        sys.modules["__main__"] = main
        return vars(main)


class CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class CapabilityData(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32),
                ("inheritable", ctypes.c_uint32)]


def give_up_capabilities(all_of_them):
    """What executing a program would leave of them, less what no job has."""
    header = CapabilityHeader(CAPABILITY_VERSION_3, 0)
    data = (CapabilityData * 2)()
    if libc.capget(ctypes.byref(header), data) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    for capability in GIVEN_UP:
        for option in ((PR_CAPBSET_DROP, capability), (PR_CAP_AMBIENT, PR_CAP_AMBIENT_LOWER, capability)):
            try:
                prctl(*option)
            except OSError:
                # Refused to a process without the right to, and for one that this kernel lacks.
                pass
        half = data[capability // 32]
        for kind in ("effective", "permitted", "inheritable"):
            setattr(half, kind, getattr(half, kind) & ~(1 << capability % 32))
    if all_of_them:
        # Entering a user namespace gives all of them. A program that is not root's executes
        # without.
        for half in data:
            half.effective = half.permitted = half.inheritable = 0
    if libc.capset(ctypes.byref(header), data) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def refresh_modules():
    """What modules drew or noted at their import and attempts must not share."""
    # Handlers of modules that were imported would do for each attempt what they are meant to do once.
    # Those of the standard library that concern what an attempt itself does are put back.
    atexit = sys.modules.get("atexit")
    if atexit is not None:
        atexit._clear()
        logging = sys.modules.get("logging")
        if logging is not None:
            atexit.register(logging.shutdown)
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            atexit.register(util._exit_function)
    weakref = sys.modules.get("weakref")
    if weakref is not None:
        for finalizer in list(weakref.finalize._registry):
            finalizer.atexit = False
        weakref.finalize._registered_with_atexit = False
    # The random numbers of the standard library are drawn again by a hook of its own at each fork.
    for name in ("numpy.random", "torch"):
        module = sys.modules.get(name)
        if module is not None:
            module.seed()
    threading = sys.modules.get("threading")
    if threading is not None and hasattr(threading.main_thread(), "_set_native_id"):
        threading.main_thread()._set_native_id()
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = tempfile._name_sequence = None
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)
    # Folders may hold other files by now. The function of `importlib` for this imports much.
    for finder in list(sys.path_importer_cache.values()):
        if hasattr(finder, "invalidate_caches"):
            finder.invalidate_caches()


def hide_frames(own):
    """Makes a traceback begin with the script."""
    hook = sys.excepthook

    def shortened(kind, error, trace):
        while trace is not None and trace.tb_frame.f_globals is not own:
            trace = trace.tb_next
        if error is not None:
            error.__traceback__ = trace
        sys.excepthook = hook
        hook(kind, error, trace)

    sys.excepthook = shortened


def said(word, why):
    return ("%s %s" % (word, why))[:ANSWER_MAX].encode(errors="replace")[:ANSWER_MAX]


def begin():
    """Serves until its end. Returns what an attempt is to run."""
    parent = Parent()
    try:
        if sys.version_info < (3, 9):
            raise Unfit("Python %d.%d is older than 3.9" % sys.version_info[:2])
        parent.prepare()
    except Unfit as why:
        os.write(parent.control, said("unfit", why))
        os._exit(0)
    parent.settle()
    os.write(parent.control, b"ready")
    attempt = parent.serve()
    try:
        attempt.arrange()
        return attempt.source, attempt.script, attempt.start()
    except BaseException as error:
        # The link may be closed: the shim has not waited.
        try:
            os.write(attempt.link, said("failed", "%s: %s" % (type(error).__name__, error)))
        finally:
            os._exit(1)


# --- the end of an attempt ---


def end_soon(namespace, known, code):
    """Does what the interpreter does at its end, short of taking apart what was imported before the
    fork: that would copy all of it first. Returns if something is left that only the interpreter's own
    end deals with, which does no harm after this."""
    threading, atexit = sys.modules.get("threading"), sys.modules.get("atexit")
    if threading is not None:
        threading._shutdown()
    if atexit is not None:
        atexit._run_exitfuncs()
    if len(os.listdir("/proc/self/task")) != 1:
        return
    fresh = [vars(module) for name, module in list(sys.modules.items())
             if name not in known and isinstance(module, type(sys))]
    for names in [namespace, *reversed(fresh)]:
        for name in [name for name in names if name != "__builtins__"]:
            names[name] = None
    gc.collect()
    # Open files, for example. Only what was made since the fork is listed.
    if any(hasattr(type(thing), "__del__") for thing in gc.get_objects()):
        return
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ctypes.PyDLL(None).exit(code)


source, script, namespace = begin()
known = set(sys.modules)
try:
    exec(compile(source, script, "exec", 0, True), namespace)
    code = 0
except SystemExit as end:
    code = 0 if end.code is None else end.code
    if type(code) is not int or not 0 <= code < 256:
        gc.unfreeze()
        raise
except BaseException:
    gc.unfreeze()
    hide_frames(namespace)
    raise
try:
    end_soon(namespace, known, code)
except BaseException:
    # The interpreter meets it again, and says so as ever.
    pass
# What hangs on modules that were imported before the fork is found and ended only if they are collected.
gc.unfreeze()
sys.exit(code)
