//! What a new user stumbled over because nobody said it: what runs on, what is kept and until when, and that nothing was done.

use super::sandbox::Sandbox;

#[test]
fn all_that_is_wrong_with_a_schedule_is_told_at_once() {
    let sandbox = Sandbox::with_script();
    sandbox.write("a.toml", "command = 'true'\n[schedule]\ntimezone = 'Mars/Olympus'\ncron = '0 25 * * *'\nonly_between = ['26:00', '06:00']\n");
    sandbox.write("b.toml", "command = 'true'\n[schedule]\ntimezone = 'Mars/Olympus'\ncron = '0 25 * * *'\nonly_between = '22-06'\n");
    for file in ["a.toml", "b.toml"] {
        let ended = sandbox.lamp(&["check", file]);
        for key in ["`schedule.timezone`", "`schedule.cron`", "`schedule.only_between`"] {
            assert_eq!(ended.out.matches(key).count(), 1, "{key}: {ended:?}");
        }
    }
}

#[test]
fn a_name_that_is_no_part_of_an_id_is_told_and_an_empty_one_is_refused() {
    let sandbox = Sandbox::with_script();
    let check = |name: &str| sandbox.lamp(&["check", "--name", name, "--", "sh", "train.py"]);
    let odd = check("Bad Name/../x");
    assert!(odd.code == 0 && odd.out.contains("warning: `name`: the id of each of its jobs begins with `bad-name----x-`"), "{odd:?}");
    for plain in ["digits", "My Job", "train_v2.1"] {
        assert!(!check(plain).out.contains("`name`"), "{plain}");
    }
    for empty in ["", " "] {
        let refused = check(empty);
        assert!(refused.code == 100 && refused.out.contains("error: `name`: is empty"), "{refused:?}");
    }
    // What is taken all the same is not told to whoever wants to hear of nothing but faults.
    let quiet = sandbox.lamp(&["run", "-q", "--name", "Bad Name/../x", "--", "true"]);
    assert_eq!((quiet.code, quiet.err.contains("warning")), (0, false), "{quiet:?}");
}
