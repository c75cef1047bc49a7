//! Looks for a sweeper before `lamp doctor --prove` buys anything, and says what it found.
//!
//! Not here: whether a sweep is tried (`policy::account::sweeper_proof`).

use crate::account::sweeper;
use crate::cli::Context;
use crate::jobdir::SweeperDir;
use crate::policy::account::sweeper_proof::{Expected, SweeperFacts, expected};
use crate::wire::{StoreHandle, Workstation, causes};

pub async fn look(context: &Context, workstation: &Workstation, store: &StoreHandle) -> Expected {
    let name = sweeper::name(&context.config.user.owner);
    let dir = SweeperDir::new(store.clone(), &name);
    let ((function, schedule), came) = tokio::join!(workstation.aws_sweeper(&name), dir.came());
    let came = came.map_err(|error| causes(&error).join(": "));
    expected(
        &SweeperFacts { name, job_root: workstation.job_root.clone(), function, schedule, came },
        context.clock.now(),
    )
}

/// `daemon`: one runs here, so its sweep is tried in any case.
pub fn tell(context: &Context, expected: &Expected, daemon: bool) {
    let printer = &context.printer;
    let alone = "only the switch on the machine is tried";
    let install = "`lamp init aws --sweeper` installs a sweeper in the cloud, which ends a machine whose kernel hangs";
    match expected {
        Expected::Comes => {}
        Expected::Missing(missing) => {
            printer.warn(format!(
                "{missing}: it is tried all the same, and the proof fails where it does not come"
            ));
            printer.hint("`lamp doctor` says what is wrong with it, `lamp init aws --sweeper` makes it as it should be");
        }
        Expected::Unknown(why) => {
            let rest = if daemon { "the daemon's sweep is tried" } else { alone };
            printer.warn(format!("whether a sweeper of yours is installed cannot be read, so that it is not known: {rest} ({why})"));
            printer.hint("`lamp iam controller` prints the policy that lets it be looked at");
        }
        Expected::Elsewhere(_) | Expected::Nobody if daemon => {}
        Expected::Elsewhere(elsewhere) => {
            printer.warn(format!("{elsewhere}, and no daemon runs here: {alone}"));
            printer.hint(install);
        }
        Expected::Nobody => {
            printer.warn(format!(
                "no sweeper of yours is installed, and no daemon runs here: {alone}"
            ));
            printer.hint(install);
        }
    }
}
