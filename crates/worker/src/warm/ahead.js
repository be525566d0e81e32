// An interpreter that is started ahead of its attempt, and runs the script of that one only.
//
//   shim ──what to load──▶ this program: loads the modules ──waiting──▶ shim
//        ──working folder, script, variables──▶ this program ──ready──▶ shim
//        ──go──▶ the script, as if the interpreter had been executed with it
//
// Nothing of an attempt is here before it has begun: the shim, which is process 1 of the PID namespace
// that both are in, gets it from the engine only then.
//
// While it waits it stands still, timers included. It must leave nothing of itself to the script, and
// nothing that modules replace may come between it and its link. Node.js 18 or later.

((link, require, load) => {
  'use strict';
  const { readFileSync, readSync, writeFileSync, writeSync, closeSync } = require('fs');
  const { dirname, join } = require('path');
  const Module = require('module');
  const { setImmediate } = globalThis;
  const { env } = process;

  const MESSAGE_MAX = 1 << 18;
  const ANSWER_MAX = 300;
  // What may be open: the standard streams.
  const STREAMS = ['PipeWrap', 'TTYWrap', 'FileHandle'];
  // Errors of a module that `require` does not load, and `import` may.
  const NOT_REQUIRED = [
    'ERR_REQUIRE_ESM', 'ERR_REQUIRE_ASYNC_MODULE', 'ERR_PACKAGE_PATH_NOT_EXPORTED',
  ];

  const buffer = Buffer.alloc(MESSAGE_MAX);
  const end = () => process.kill(process.pid, 'SIGKILL');
  const receive = () => {
    const length = readSync(link, buffer);
    // The shim is gone.
    if (length === 0) end();
    return buffer.toString('utf8', 0, length);
  };
  const say = (word, why) => writeSync(link, `${word} ${why}`.slice(0, ANSWER_MAX));
  const described = (error) => {
    const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    return text.split('\n')[0];
  };
  const unfit = (why) => {
    say('unfit', why);
    end();
  };

  // Whether scripts of this folder are modules of the kind that `import` loads.
  const importsByDefault = (folder) => {
    for (let at = folder; ; at = dirname(at)) {
      try {
        return JSON.parse(readFileSync(join(at, 'package.json'), 'utf8')).type === 'module';
      } catch (error) {
        if (error.code !== 'ENOENT' || at === dirname(at)) return false;
      }
    }
  };

  // What an evaluated program has and a script has not.
  const own = ['module', 'exports', 'require', '__filename', '__dirname'];
  const tidy = (options) => {
    process.argv.length = 1;
    process.execArgv.length = options;
    delete process._eval;
    const global = ['console', 'crypto', 'navigator', 'performance', 'process'];
    const libraries = Module.builtinModules.filter((name) => !global.includes(name));
    for (const name of [...own, ...libraries]) delete globalThis[name];
  };

  const loadAll = async (names, folder, imports) => {
    const requireThere = Module.createRequire(join(folder, 'script'));
    for (const name of names) {
      try {
        if (imports) {
          await load(name);
          continue;
        }
        try {
          requireThere(name);
        } catch (error) {
          if (!NOT_REQUIRED.includes(error?.code)) throw error;
          await load(name);
        }
      } catch (error) {
        unfit(`cannot import ${name}: ${described(error)}`);
      }
    }
    // What they do next in any case is done before this goes on.
    await new Promise((resolve) => setImmediate(resolve));
  };

  // What is replaced for the attempt, or goes on by itself, must be as it was.
  const check = (variables, folder) => {
    const now = process.env === env ? { ...env } : {};
    const names = Object.keys({ ...variables, ...now });
    const changed = names.filter((name) => variables[name] !== now[name]).sort();
    if (changed.length > 0) {
      unfit(`importing them changes environment variables: ${changed.slice(0, 3).join(', ')}`);
    }
    if (process.cwd() !== folder) unfit('importing them changes the working folder');
    const open = process.getActiveResourcesInfo().filter((kind) => !STREAMS.includes(kind));
    if (open.length > 0) {
      unfit(`importing them leaves something going on: ${open.slice(0, 3).join(', ')}`);
    }
  };

  const arrange = (folder, script, variables) => {
    process.chdir(folder);
    for (const name of Object.keys(env)) delete env[name];
    for (const variable of variables) {
      const at = variable.indexOf('=');
      env[variable.slice(0, at)] = variable.slice(at + 1);
    }
    process.argv.push(script);
    // The evaluation has put some of them back at its end.
    for (const name of own) delete globalThis[name];
  };

  const nameOfThread = '/proc/self/comm';
  const serve = async () => {
    if (Number(process.versions.node.split('.')[0]) < 18) {
      unfit(`Node.js ${process.versions.node} is older than 18`);
    }
    const name = readFileSync(nameOfThread, 'utf8').trim();
    const [pack, options, scripts, imports, folder, ...modules] = receive().split('\0');
    process.title = `outlast warm ${pack} (starting)`;
    tidy(Number(options));
    process.chdir(folder);
    const [variables, real] = [{ ...env }, process.cwd()];
    await loadAll(modules, scripts, imports === 'import' || importsByDefault(scripts));
    check(variables, real);
    process.title = `outlast warm ${pack}`;
    say('waiting', process.version);

    const [cwd, script, ...given] = receive().split('\0');
    try {
      arrange(cwd, script, given);
    } catch (error) {
      say('failed', described(error));
      end();
    }
    process.title = `${process.execPath} ${script}`;
    writeFileSync(nameOfThread, name);
    say('ready', process.pid);
    if (receive() !== 'go') end();
    closeSync(link);
    setImmediate(() => Module.runMain(script));
  };

  serve().catch((error) => unfit(described(error)));
})
