//! Hints for a job whose image is missing.
//!
//! Not here: the lookup (`adapters::aws::ec2::image`).

use crate::market::Region;

/// `is_published`: AWS publishes the image, and does so in other regions.
pub fn hint(region: &Region, is_published: bool) -> String {
    let own = format!("`aws ec2 describe-images --region {region} --owners self` shows your own");
    if is_published {
        format!(
            "another region (`--region`) may have it; or another `--image`, or `image` in [machine] of the job file: {own}"
        )
    } else {
        format!(
            "another `--image`, or `image` in [machine] of the job file: {own}, and `dlami` is the one of jobs that name none"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_is_not_there_says_which_are() {
        let (region, own) = (
            Region::new("us-east-1"),
            "`aws ec2 describe-images --region us-east-1 --owners self`",
        );
        let other = hint(&region, false);
        assert!(other.contains(own) && other.contains("`dlami`"), "{other}");
        let dlami = hint(&region, true);
        let begin = "another region (`--region`) may have it";
        assert!(dlami.starts_with(begin) && dlami.contains(own), "{dlami}");
    }
}
