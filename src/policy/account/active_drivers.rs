//! The processes on this workstation that still drive a job root marked for removal.
//!
//! An adapter finds them by their locks.

use super::setup_plan::SetupLine;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrivenHere {
    pub daemon: bool,
    /// Jobs with their own process: a `lamp run`, attached or detached, or a process that a stop
    /// started.
    pub jobs: Vec<String>,
}

/// A daemon blocks the removal of its job root: it would query a deleted bucket forever, or write
/// its clock into an emptied one. If the job root stays, the daemon is only reported.
pub fn in_the_way(here: &DrivenHere, root_goes: bool) -> Vec<SetupLine> {
    let line = |thing: &str, found: &str, remark: String| SetupLine {
        blocks: root_goes,
        ..SetupLine::new(thing, found, Vec::new()).remark(remark)
    };
    let daemon = here.daemon.then(|| {
        let after =
            if root_goes { "the job root would go from under it" } else { "it goes on, and machines that it launches lack what was taken away" };
        line(
            "daemon on this workstation",
            "drives this job root",
            format!("{after}: `systemctl --user stop lamp-controller`, or Ctrl-C where `lamp daemon` runs, ends it"),
        )
    });
    let jobs = here.jobs.first().map(|first| {
        let more = if here.jobs.len() > 1 { format!(" and {} more", here.jobs.len() - 1) } else { String::new() };
        line(
            "processes on this workstation",
            "drive jobs of this job root",
            format!("they drive {first}{more}, and end with the job: `lamp status {first}` shows how it stands, `lamp cancel {first}` ends it"),
        )
    });
    daemon.into_iter().chain(jobs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drives_a_job_root_is_in_the_way_only_where_that_goes() {
        let here = DrivenHere { daemon: true, jobs: vec!["x-222222".into(), "y-222222".into()] };
        let lines = in_the_way(&here, true);
        let said: Vec<&str> = lines.iter().filter_map(|line| line.remark.as_deref()).collect();
        assert!(
            lines.iter().all(|line| line.blocks && line.steps.is_empty()) && said.len() == 2,
            "{lines:?}"
        );
        assert!(
            said[0].contains("`systemctl --user stop lamp-controller`")
                && said[1].contains("x-222222 and 1 more"),
            "{said:?}"
        );
        assert!(in_the_way(&here, false).iter().all(|line| !line.blocks && line.remark.is_some()));
        assert_eq!(in_the_way(&DrivenHere::default(), true), []);
    }
}
