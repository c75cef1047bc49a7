//! The job of a command line: read with its workdir, its warnings printed, its errors refused.
//!
//! Not here: what is wrong with a job (`app::launch::submission`).

use crate::app::launch::submission::{self, Submission, shown_file};
use crate::cli::shell::flags::JobArgs;
use crate::cli::{Context, Fault};
use crate::config::{self, Loaded};
use crate::wire::Survey;

impl JobArgs {
    /// Reads the job and its workdir; prints warnings.
    ///
    /// # Errors
    /// Fails when the job has errors, or its workdir holds what must not ship.
    pub fn prepare(&self, context: &Context) -> Result<Submission, Fault> {
        let (loaded, survey) = self.examine(context).map_err(unstarted)?;
        self.accepted(context, loaded, survey)
    }

    /// The same for a call that buys nothing: a limit is optional.
    ///
    /// # Errors
    /// As [`Self::prepare`].
    pub fn prepare_unbought(&self, context: &Context) -> Result<Submission, Fault> {
        let (mut loaded, survey) = self.examine(context).map_err(unstarted)?;
        loaded.findings.retain(|finding| !finding.is_of_no_limit());
        self.accepted(context, loaded, survey)
    }

    /// Everything to know about the job before it is submitted: `submission::examine`.
    ///
    /// # Errors
    /// Fails when the job file or the workdir cannot be read.
    pub fn examine(&self, context: &Context) -> Result<(Loaded, Option<Survey>), Fault> {
        let mut loaded = self.read(context)?;
        let survey = submission::examine(&mut loaded, &context.roots.url)?;
        Ok((loaded, survey))
    }

    fn accepted(
        &self,
        context: &Context,
        loaded: Loaded,
        survey: Option<Survey>,
    ) -> Result<Submission, Fault> {
        self.say_which_file(context, &loaded);
        let submission = Submission::accept(loaded, survey, &context.current_dir)?;
        let file = shown_file(&submission.loaded, &context.current_dir);
        context.printer.findings(Some(&file), &submission.loaded.findings);
        Ok(submission)
    }

    /// Says whether a job file that the user did not name was used.
    fn say_which_file(&self, context: &Context, loaded: &Loaded) {
        let is_there = context.current_dir.join(config::JOB_FILE).is_file();
        match (&self.file, &loaded.file) {
            (None, Some(_)) => context
                .printer
                .note(format!("the job is `{}`", shown_file(loaded, &context.current_dir))),
            (None, None) if is_there => {
                let file = config::JOB_FILE;
                context.printer.note(format!(
                    "the job is the command line alone, without `{file}`; `lamp run {file} -- ...` runs the command with its settings"
                ));
            }
            _ => {}
        }
    }
}

fn unstarted(mut fault: Fault) -> Fault {
    fault.meaning.get_or_insert_with(|| "nothing was started or billed".to_owned());
    fault
}
