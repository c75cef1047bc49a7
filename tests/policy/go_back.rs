//! Which ends of a start are put down to its checkpoint.

use lamplighter::job::{CheckpointNo, ExitStatus};
use lamplighter::market::Span;
use lamplighter::policy::lifecycle::checkpoint_rollback::{GOES_BACK_MAX, StartUp, must_live};
use proptest::prelude::*;

fn start() -> StartUp {
    StartUp {
        from: CheckpointNo::FIRST.next(),
        exact: true,
        lived: Span::from_secs(3),
        is_going: false,
        times: 0,
        is_last: false,
    }
}

fn code(code: i32) -> ExitStatus {
    ExitStatus { code: Some(code), ..ExitStatus::default() }
}

fn signal(signal: i32) -> ExitStatus {
    ExitStatus { signal: Some(signal), ..ExitStatus::default() }
}

#[test]
fn failure_of_its_own_within_its_start_up_goes_back() {
    for (what, exit, expected) in [
        ("Python's traceback", code(1), true),
        ("a word of the script's own", code(3), true),
        ("a segmentation fault", signal(11), true),
        ("an abort", signal(6), true),
        ("a segmentation fault below a shell", code(139), true),
        ("success", code(0), false),
        ("no such command", code(127), false),
        ("not executable", code(126), false),
        ("killed by somebody", signal(9), false),
        ("terminated by somebody", signal(15), false),
        ("Ctrl-C", signal(2), false),
        ("killed below a shell", code(137), false),
        ("terminated below a shell", code(143), false),
        ("for want of memory", ExitStatus { oom: true, ..signal(9) }, false),
        ("for want of memory, with a code", ExitStatus { oom: true, ..code(1) }, false),
        ("nobody knows how", ExitStatus::default(), false),
    ] {
        assert_eq!(start().goes_back(exit), expected, "{what}");
    }
}

#[test]
fn start_that_got_going_or_lived_long_has_a_good_checkpoint() {
    let failed = code(1);
    assert!(
        StartUp { lived: Span::from_secs(599), ..start() }.goes_back(failed),
        "a large model is loaded"
    );
    assert!(!StartUp { lived: Span::from_secs(600), ..start() }.goes_back(failed));
    assert!(!StartUp { is_going: true, ..start() }.goes_back(failed));
    assert!(!StartUp { is_last: true, ..start() }.goes_back(failed), "there is no older one");
    assert!(StartUp { times: 1, ..start() }.goes_back(failed));
    assert!(!StartUp { times: 2, ..start() }.goes_back(failed), "twice at most");
}

#[test]
fn saves_of_a_start_count_once_it_lives_three_times_as_long() {
    for (died, lives) in [(0, 60), (20, 60), (40, 120), (590, 600)] {
        assert_eq!(must_live(Span::from_secs(died)), Span::from_secs(lives), "{died}");
    }
}

proptest! {
    /// However the starts end, an attempt goes back twice at most, and each time to an older one.
    #[test]
    fn it_ends(exits in prop::collection::vec((0..3i32, any::<bool>(), any::<bool>(), 0..700u64), 1..20)) {
        let (mut times, mut from) = (0, 1000_u32);
        for (end, exact, is_going, lived) in exits {
            let number = |number: u32| format!("{number:04}").parse::<CheckpointNo>().unwrap();
            let start = StartUp { from: number(from), exact, is_going, times, lived: Span::from_secs(lived), is_last: false };
            if start.goes_back(code(end)) {
                prop_assert!(end != 0 && !is_going && lived < 600);
                prop_assert!(start.before() >= start.from && start.before() <= start.from.next());
                (times, from) = (times + 1, from - u32::from(exact));
            }
        }
        prop_assert!(times <= GOES_BACK_MAX);
    }
}
