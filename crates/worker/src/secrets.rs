//! Secrets of the worker that actions may ask for: one folder, one file each.
//!
//! The folder is what Kubernetes, Docker and systemd make of a secret: Kubernetes puts links into
//! it that lead to a hidden folder inside, and Docker and Kubernetes leave files readable by all
//! on a file system in memory. On a disk a file that others may read or write is refused: what
//! is readable by all is no secret.
//!
//! Files are read for every attempt, so a secret that is rotated is the new one from then on.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use outlast_packs::{Action, SecretAs, SecretSpec, plain_file};
use rustix::fs::StatVfsMountFlags;

/// Longest secret: more than any key or certificate chain, and it fits into an environment.
const SECRET_BYTES_MAX: u64 = 64 * 1024;
/// Where Docker puts secrets into a container, readable by all that is in it.
const OF_DOCKER: &str = "/run/secrets";
/// File systems that live in memory: tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// The folder with the worker's secrets.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    folder: Option<PathBuf>,
}

/// Why a secret is unavailable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The worker was started without secrets.
    #[error("secret `{name}` is missing: the worker has no `worker.secrets`")]
    NoFolder {
        /// The secret.
        name: String,
    },
    /// There is no such file.
    #[error("secret `{name}` is missing: there is no file {}", path.display())]
    Missing {
        /// The secret.
        name: String,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// It is not fit to be used.
    #[error("secret `{name}` cannot be used: {} {problem}", path.display())]
    Unfit {
        /// The secret.
        name: String,
        /// The file.
        path: PathBuf,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

/// The secrets of one attempt.
#[derive(Default)]
pub struct ResolvedSecrets {
    /// Variables to add to the environment.
    pub variables: Vec<(String, String)>,
    /// Files to write, by the variable that is to name each.
    pub files: Vec<(String, Vec<u8>)>,
}

/// Shows how many there are, never what.
impl std::fmt::Debug for ResolvedSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ResolvedSecrets({} variables, {} files)", self.variables.len(), self.files.len())
    }
}

impl ResolvedSecrets {
    /// The values, for hiding them in what a script prints.
    pub fn values(&self) -> impl Iterator<Item = &[u8]> {
        let variables = self.variables.iter().map(|(_, value)| value.as_bytes());
        variables.chain(self.files.iter().map(|(_, value)| value.as_slice()))
    }
}

impl SecretError {
    /// Says which secret it is, without where it was looked for.
    #[must_use]
    pub fn in_short(&self) -> String {
        let (Self::NoFolder { name } | Self::Missing { name, .. } | Self::Unfit { name, .. }) =
            self;
        format!("secret {name}")
    }
}

impl Secrets {
    /// Takes secrets from `folder`; there are none without one.
    #[must_use]
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }

    /// Reads what an action asks for.
    ///
    /// # Errors
    /// The first unavailable secret, by name.
    pub fn resolve(&self, action: &Action) -> Result<ResolvedSecrets, SecretError> {
        let mut found = ResolvedSecrets::default();
        for (name, spec) in &action.secrets {
            let (path, value) = self.read(&spec.from)?;
            let unfit = |problem: &str| unfit(spec, &path, problem);
            match spec.way {
                SecretAs::File => found.files.push((format!("{name}_FILE"), value)),
                SecretAs::Env => {
                    let text = String::from_utf8(value)
                        .map_err(|_bytes| unfit("is no text: ask for it `as: file`"))?;
                    if text.contains('\0') {
                        return Err(unfit("holds a zero character: ask for it `as: file`"));
                    }
                    // Editors and `echo` end a file with a newline that is not meant.
                    let text = text.strip_suffix('\n').unwrap_or(&text);
                    let text = text.strip_suffix('\r').unwrap_or(text);
                    found.variables.push((name.clone(), text.to_owned()));
                }
            }
        }
        Ok(found)
    }

    fn read(&self, name: &str) -> Result<(PathBuf, Vec<u8>), SecretError> {
        let name = name.to_owned();
        let Some(folder) = &self.folder else { return Err(SecretError::NoFolder { name }) };
        let path = folder.join(&name);
        match read_checked(folder, &path) {
            Ok(value) => Ok((path, value)),
            Err(Problem::Missing) => Err(SecretError::Missing { name, path }),
            Err(Problem::Unfit(problem)) => Err(SecretError::Unfit { name, path, problem }),
        }
    }
}

fn unfit(spec: &SecretSpec, path: &Path, problem: &str) -> SecretError {
    let (name, path) = (spec.from.clone(), path.to_owned());
    SecretError::Unfit { name, path, problem: problem.to_owned() }
}

enum Problem {
    Missing,
    Unfit(String),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::NotFound {
            Self::Missing
        } else {
            Self::Unfit(format!("cannot be read: {error}"))
        }
    }
}

fn read_checked(folder: &Path, path: &Path) -> Result<Vec<u8>, Problem> {
    let (folder, real) = (folder.canonicalize()?, path.canonicalize()?);
    if !real.starts_with(&folder) {
        return Err(Problem::Unfit("leads out of the folder of secrets".to_owned()));
    }
    // What is looked at is what is read, whatever happens to the name meanwhile.
    let file = match plain_file::open(&real) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            return Err(Problem::Unfit("is no plain file".to_owned()));
        }
        opened => opened?,
    };
    let found = file.metadata()?;
    if !is_of_docker(&file, &real) {
        check_owner(&found)?;
    }
    check_mode(&file, &real, found.permissions().mode())?;
    let mut value = Vec::new();
    file.take(SECRET_BYTES_MAX + 1).read_to_end(&mut value)?;
    if value.len() as u64 > SECRET_BYTES_MAX {
        return Err(Problem::Unfit(format!("is longer than {SECRET_BYTES_MAX} bytes")));
    }
    Ok(value)
}

/// Docker Compose binds a file of the host into the container, with the owner that it has there. It
/// cannot be changed in the container.
fn is_of_docker(file: &File, path: &Path) -> bool {
    let is_fixed = || {
        let found = rustix::fs::fstatvfs(file);
        found.is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
    };
    path.starts_with(OF_DOCKER) && is_fixed()
}

/// A file that another user owns can be changed by that user.
fn check_owner(found: &fs::Metadata) -> Result<(), Problem> {
    let own = rustix::process::geteuid().as_raw();
    if found.uid() == own || found.uid() == 0 {
        return Ok(());
    }
    let owner = found.uid();
    Err(Problem::Unfit(format!("belongs to user {owner}: make it this user's or root's")))
}

fn check_mode(file: &File, path: &Path, mode: u32) -> Result<(), Problem> {
    let mode = mode & 0o777;
    let say = |who: &str| format!("may be {who} (mode {mode:o}): chmod 400, or 440 for a group");
    if mode & 0o022 != 0 && !(is_in_memory(file) && mode & 0o002 == 0) {
        return Err(Problem::Unfit(say("changed by others")));
    }
    if mode & 0o004 != 0 && !is_in_memory(file) && !path.starts_with(OF_DOCKER) {
        return Err(Problem::Unfit(say("read by everybody")));
    }
    Ok(())
}

fn is_in_memory(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| {
        u64::try_from(found.f_type).is_ok_and(|kind| IN_MEMORY.contains(&(kind & 0xffff_ffff)))
    })
}

#[cfg(test)]
mod tests;
