//! The command that plays a world again.
//!
//! `just soak` reads these flags (tests/sim/soak.rs).

use crate::sim::{Lone, SaveStyle, Story, WorldRun};

impl WorldRun {
    /// The command that plays this world and prints its story.
    pub fn command(&self) -> String {
        let mut words = vec!["just soak".to_owned()];
        words.extend(
            (self.hours != WorldRun::seed(0).hours).then(|| format!("--hours {}", self.hours)),
        );
        words.extend((self.saves == Some(SaveStyle::Renamed)).then(|| "--renamed".to_owned()));
        words.extend((!self.newer).then(|| "--older".to_owned()));
        words.extend(self.gang.then(|| "--gangs".to_owned()));
        words.extend((!self.layouts).then(|| "--plain".to_owned()));
        words.extend(self.planted.map(|bug| format!("--bug {bug:?}")));
        words.extend(self.lone.map(|lone| format!("--lone {:?}:{:?}", lone.fault, lone.watching)));
        words.extend(self.story.map(|story| format!("--story {story:?}")));
        words.extend(self.death.map(|(who, call, after)| {
            format!("--death {who}:{call}:{}", if after { "after" } else { "before" })
        }));
        words.push(format!("--seed {}", self.seed));
        words.join(" ")
    }

    /// The same world with a story or a death in it, as [`WorldRun::command`] writes them.
    ///
    /// # Errors If the word is not known.
    pub fn with(self, flag: &str, word: &str) -> Result<WorldRun, String> {
        match flag {
            "--story" => {
                let story = Story::ALL.into_iter().find(|story| format!("{story:?}") == word);
                Ok(WorldRun {
                    story: Some(
                        story.ok_or_else(|| format!("`{word}` is none of {:?}", Story::ALL))?,
                    ),
                    ..self
                })
            }
            "--lone" => {
                let lone = Lone::all()
                    .into_iter()
                    .find(|lone| format!("{:?}:{:?}", lone.fault, lone.watching) == word);
                Ok(WorldRun {
                    lone: Some(lone.ok_or_else(|| {
                        format!(
                            "`{word}` is not like KernelHang:Sweeper, or nothing is measured of it"
                        )
                    })?),
                    ..self
                })
            }
            "--death" => {
                let no = || format!("`{word}` is not like agent:12:before or controller:3:after");
                let parts: Vec<&str> = word.split(':').collect();
                let [who, call, when] = parts[..] else { return Err(no()) };
                let who = ["controller", "agent"]
                    .into_iter()
                    .find(|known| *known == who)
                    .ok_or_else(no)?;
                let after = ["before", "after"]
                    .into_iter()
                    .position(|known| known == when)
                    .ok_or_else(no)?
                    == 1;
                Ok(WorldRun {
                    death: Some((who, call.parse().map_err(|_| no())?, after)),
                    short: true,
                    ..self
                })
            }
            _ => Err(format!("`{flag}` is none of ours")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_plays_the_same_world_again() {
        let died = WorldRun { death: Some(("agent", 12, true)), short: true, ..WorldRun::seed(0) };
        let told = WorldRun {
            story: Some(Story::ZoneBlinks),
            hours: 24,
            newer: false,
            layouts: false,
            saves: Some(SaveStyle::Renamed),
            ..WorldRun::seed(7)
        };
        assert_eq!(died.command(), "just soak --death agent:12:after --seed 0");
        assert_eq!(
            told.command(),
            "just soak --hours 24 --renamed --older --plain --story ZoneBlinks --seed 7"
        );
        for (play, flag, word) in
            [(died, "--death", "agent:12:after"), (told, "--story", "ZoneBlinks")]
        {
            let plain = WorldRun { death: None, story: None, short: false, ..play };
            assert_eq!(
                plain.with(flag, word).map(|play| format!("{play:?}")),
                Ok(format!("{play:?}"))
            );
        }
        for (flag, word) in [
            ("--death", "agent:12"),
            ("--death", "laptop:1:after"),
            ("--death", "agent:x:after"),
            ("--story", "Nobody"),
        ] {
            assert!(WorldRun::seed(0).with(flag, word).is_err(), "{flag} {word}");
        }
    }
}
