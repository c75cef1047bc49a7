//! When a checkpoint is uploaded, and how often it pays.

use lamplighter::market::Span;
use lamplighter::policy::{
    CadenceFault, cadence_cost, check_cadence, daly_interval, young_interval,
};
use proptest::prelude::*;

fn secs(secs: u64) -> Span {
    Span::from_secs(secs)
}

#[test]
fn young_and_daly_by_hand() {
    assert_eq!(young_interval(secs(60), secs(86_400)).duration().as_secs(), 3219);
    let ratio: f64 = 60.0 / (2.0 * 86_400.0);
    let by_hand = 3219.938 * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - 60.0;
    assert!((daly_interval(secs(60), secs(86_400)).secs_f64() - by_hand).abs() < 0.1);
    assert_eq!(
        daly_interval(secs(7200), secs(3600)),
        secs(3600),
        "a save longer than two times between interruptions"
    );
    assert_eq!(daly_interval(secs(60), Span::ZERO), Span::ZERO);
}

#[test]
fn cadence_that_cannot_fit_is_refused_with_its_numbers() {
    assert_eq!(check_cadence(secs(600), secs(60), Some(secs(120))), Ok(()));
    let fault = check_cadence(secs(60), secs(60), None).unwrap_err();
    assert_eq!(fault, CadenceFault::LongerThanInterval { save: secs(60), interval: secs(60) });
    // Saving more often does not make a save shorter.
    let fault = check_cadence(secs(20), secs(130), Some(secs(120))).unwrap_err();
    assert!(matches!(fault, CadenceFault::LongerThanNotice { .. }), "{fault}");
    let fault = check_cadence(secs(600), secs(110), Some(secs(120))).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "saving and uploading takes 1m 50s, longer than the 2m of notice: no final checkpoint fits, an interruption costs up to 10m"
    );
}

proptest! {
    /// The suggested cadence costs no more than half or twice of it, in the model that it comes
    /// from.
    #[test]
    fn youngs_interval_is_a_minimum(save in 1..600u64, between in 36_000..1_000_000u64) {
        let (save, between) = (secs(save), secs(between));
        let total = |interval: Span| {
            let cost = cadence_cost(interval, save, Span::ZERO, between);
            cost.saving_share + cost.lost_share
        };
        let best = young_interval(save, between);
        let scaled = |times: f64| Span::from_duration(best.duration().mul_f64(times));
        prop_assert!(total(best) <= total(scaled(0.5)) && total(best) <= total(scaled(2.0)));
    }

    /// Cheaper saves and more interruptions ask for shorter intervals.
    #[test]
    fn interval_follows_its_causes(save in 1..600u64, more in 0..600u64, between in 1..1_000_000u64, longer in 0..1_000_000u64) {
        prop_assert!(young_interval(secs(save), secs(between)) <= young_interval(secs(save + more), secs(between)));
        prop_assert!(young_interval(secs(save), secs(between)) <= young_interval(secs(save), secs(between + longer)));
    }
}
