//! Hints for a job whose image is missing.
//!
//! Not here: the lookup (`adapters::aws::ec2::image`).

/// `refused` is the cloud's reason. `None`: it is about something else.
pub fn hint(refused: &str) -> Option<String> {
    let missing = refused.strip_prefix("`machine.image`: ")?;
    // An invalid image word has an error that explains the syntax.
    let region = ["there is no parameter ", "there is no image ", "the parameter "]
        .iter()
        .find_map(|begin| {
            let (_, after) = missing.strip_prefix(begin)?.split_once(" in ")?;
            after.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-').next()
        })?;
    let own = format!("`aws ec2 describe-images --region {region} --owners self` shows your own");
    // The path behind `dlami`.
    let hint = if missing.contains("`/aws/service/deeplearning/") {
        format!(
            "another region (`--region`) may have it; or another `--image`, or `image` in [machine] of the job file: {own}"
        )
    } else {
        format!(
            "another `--image`, or `image` in [machine] of the job file: {own}, and `dlami` is the one of jobs that name none"
        )
    };
    Some(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_is_not_there_says_which_are() {
        let own = "`aws ec2 describe-images --region us-east-1 --owners self` shows your own";
        for missing in [
            "there is no image ami-12345678 in us-east-1, or this account may not use it",
            "there is no parameter `/my/x` in us-east-1",
        ] {
            let said = hint(&format!("`machine.image`: {missing}"));
            assert!(
                said.as_ref().is_some_and(|said| said.contains(own) && said.contains("`dlami`")),
                "{said:?}"
            );
        }
        let dlami = hint(
            "`machine.image`: there is no parameter `/aws/service/deeplearning/ami/x86_64/x/latest/ami-id` in us-east-1",
        );
        assert!(
            dlami
                .as_ref()
                .is_some_and(|said| said.starts_with("another region (`--region`) may have it")
                    && said.contains(own)),
            "{dlami:?}"
        );
        for other in
            ["`machine.image`: `ubuntu` names no image, write \"dlami\"", "`machine.disk` is 50"]
        {
            assert_eq!(hint(other), None, "{other}");
        }
    }
}
