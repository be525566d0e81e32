//! How forked attempts end.

use std::fs;

use super::{Pack, ended, text};

/// Scripts that end in every way there is.
const ENDS: [(&str, &str); 17] = [
    ("nothing.py", ""),
    ("code.py", "import sys; print('out'); sys.exit(3)"),
    ("none.py", "raise SystemExit"),
    ("words.py", "import sys; sys.exit('words')"),
    ("large.py", "import sys; sys.exit(4660)"),
    (
        "error.py",
        "def f():\n    raise ValueError('x')\ntry:\n    f()\nexcept ValueError as e:\n    raise KeyError from e\n",
    ),
    ("syntax.py", "print('x'\nx = = 1\n"),
    ("interrupted.py", "raise KeyboardInterrupt"),
    ("at_once.py", "import os; os._exit(9)"),
    (
        "killed.py",
        "import os, signal; os.kill(os.getpid(), signal.SIGUSR1); import time; time.sleep(9)",
    ),
    (
        "pipe.py",
        "import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL); import os; r, w = os.pipe(); os.close(r); os.write(w, b'x')",
    ),
    (
        "handlers.py",
        "import atexit, logging\natexit.register(print, 'last')\nlogging.warning('logged')\nprint('first')",
    ),
    ("handler_fails.py", "import atexit\natexit.register(lambda: 1 / 0)\n"),
    (
        "thread.py",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\nprint('main')",
    ),
    (
        "daemon.py",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n",
    ),
    (
        "hook.py",
        "import sys\nsys.excepthook = lambda kind, error, trace: print('hook', kind, error, trace.tb_lineno, trace.tb_next)\n1 / 0\n",
    ),
    (
        "unclosed.py",
        "import gzip, sys\nf = open(sys.argv[0] + '.txt', 'w')\nf.write('text')\ng = gzip.open(sys.argv[0] + '.gz', 'wt')\ng.write('packed')\nclass D:\n    def __del__(self):\n        print('deleted')\nkeep = D()\nkeep.itself = keep\njson_keeps = __import__('json')\njson_keeps.file = open(sys.argv[0] + '.json', 'w')\njson_keeps.file.write('kept')\n",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_script_ends_as_if_it_was_executed() {
    let mut pack = Pack::new(&["json", "logging", "threading"]);
    for (name, script) in ENDS {
        pack = pack.file(name, script);
    }
    for (name, _) in ENDS {
        let mut ends = Vec::new();
        for spec in [pack.warm(name).await, pack.cold(name)] {
            let ending = ended(spec).await;
            assert!(ending.tree_empty && ending.executed, "{name}");
            let said = text(&ending.output.stdout.bytes);
            let complained = text(&ending.output.stderr.bytes);
            let files: Vec<_> = ["txt", "gz", "json"]
                .map(|end| fs::metadata(pack.path(&format!("{name}.{end}"))).map(|file| file.len()))
                .into_iter()
                .map(Result::ok)
                .collect();
            ends.push((
                ending.kind,
                ending.code,
                ending.signal,
                said,
                without_numbers(&complained),
                files,
            ));
            for end in ["txt", "gz", "json"] {
                let _ = fs::remove_file(pack.path(&format!("{name}.{end}")));
            }
        }
        assert_eq!(ends[0], ends[1], "{name}");
    }
}

/// Without the addresses of objects.
fn without_numbers(complaint: &str) -> String {
    let mut parts = complaint.split("0x");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    rest.fold(first, |text, part| text + "0x" + part)
}
