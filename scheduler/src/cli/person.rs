//! Who is at the keyboard, for audit entries.

/// The person at the keyboard, as far as the machine knows: the account of the process, and behind
/// sudo the one that called it.
pub fn person() -> String {
    use nix::unistd::{Uid, User};
    let uid = Uid::current();
    let name = User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name);
    let caller =
        std::env::var("SUDO_USER").ok().filter(|caller| uid.is_root() && !caller.is_empty());
    caller.map_or_else(|| name.clone(), |caller| format!("{caller} (as {name})"))
}
