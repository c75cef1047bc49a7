//! Tells the framework of a model folder by the names of its files.

use crate::job::ModelFramework;

/// Each file name shows its framework. Earlier rows win.
const MARKERS: [(ModelFramework, &[&str]); 5] = [
    (ModelFramework::Mlflow, &["MLmodel"]),
    (ModelFramework::Tensorflow, &["saved_model.pb", "saved_model.pbtxt"]),
    (ModelFramework::Keras, &["model.keras", "model.h5"]),
    (ModelFramework::ScikitLearn, &["model.joblib", "model.pkl"]),
    (ModelFramework::Xgboost, &["model.bst", "model.json", "model.ubj"]),
];

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelFormatError {
    #[error("no model was found: its files are {shown}")]
    Unknown { shown: String },
    /// The marker is in a folder below.
    #[error("no model was found, but `{marker}` is in its folder `{folder}`")]
    Below { marker: String, folder: String },
    #[error("it holds models of {first} and of {second}")]
    Several { first: ModelFramework, second: ModelFramework },
    #[error("it is no folder of {framework}: none of {wanted} is in it")]
    Other { framework: ModelFramework, wanted: String },
}

/// All file names that are looked for, for people.
pub fn known_files() -> String {
    let one = |(framework, names): &(ModelFramework, &[&str])| {
        format!("{} ({framework})", names.join(" or "))
    };
    MARKERS.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The framework of a folder with these files. `said`: the user names it.
///
/// # Errors
/// When the folder lacks such a model.
pub fn framework_of(
    paths: &[&str],
    said: Option<ModelFramework>,
) -> Result<ModelFramework, ModelFormatError> {
    if let Some(said) = said {
        return named(paths, said);
    }
    let mut found =
        MARKERS.iter().filter(|(_, names)| names.iter().any(|name| paths.contains(name)));
    let Some((first, _)) = found.next() else { return Err(unknown(paths)) };
    match found.next() {
        // MLflow keeps the files of the framework beside its own.
        Some((second, _)) if *first != ModelFramework::Mlflow => {
            Err(ModelFormatError::Several { first: *first, second: *second })
        }
        _ => Ok(*first),
    }
}

fn named(paths: &[&str], said: ModelFramework) -> Result<ModelFramework, ModelFormatError> {
    let of = |framework| {
        MARKERS.iter().find(|(known, _)| *known == framework).map_or(&[][..], |(_, names)| *names)
    };
    let mut wanted = of(said).to_vec();
    if said == ModelFramework::Xgboost {
        // A classifier of XGBoost is pickled as one of scikit-learn.
        wanted.extend(of(ModelFramework::ScikitLearn));
    }
    if wanted.is_empty() || wanted.iter().any(|name| paths.contains(name)) {
        return Ok(said);
    }
    Err(ModelFormatError::Other { framework: said, wanted: wanted.join(", ") })
}

fn unknown(paths: &[&str]) -> ModelFormatError {
    let marker = |name: &str| MARKERS.iter().any(|(_, names)| names.contains(&name));
    let below =
        paths.iter().find_map(|path| path.rsplit_once('/').filter(|(_, name)| marker(name)));
    if let Some((folder, name)) = below {
        return ModelFormatError::Below { marker: name.to_owned(), folder: folder.to_owned() };
    }
    ModelFormatError::Unknown { shown: shown(paths) }
}

/// How many names a message has room for.
const SHOWN_MAX: usize = 5;

fn shown(paths: &[&str]) -> String {
    if paths.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<String> = paths.iter().take(SHOWN_MAX).map(|path| format!("`{path}`")).collect();
    let more = paths.len().saturating_sub(SHOWN_MAX);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_known_by_its_files() {
        for (paths, framework) in [
            (&["saved_model.pb", "variables/variables.index"][..], ModelFramework::Tensorflow),
            (&["model.keras"], ModelFramework::Keras),
            (&["model.pkl"], ModelFramework::ScikitLearn),
            (&["model.ubj", "notes.txt"], ModelFramework::Xgboost),
            (&["MLmodel", "model.pkl"], ModelFramework::Mlflow),
        ] {
            assert_eq!(framework_of(paths, None), Ok(framework), "{paths:?}");
        }
        assert_eq!(
            framework_of(&["model.joblib"], Some(ModelFramework::Xgboost)),
            Ok(ModelFramework::Xgboost)
        );
        assert_eq!(
            framework_of(&["weights.bin"], Some(ModelFramework::Custom)),
            Ok(ModelFramework::Custom)
        );
    }

    #[test]
    fn folder_without_a_model_says_what_is_there() {
        let told = |paths: &[&str], said| framework_of(paths, said).unwrap_err().to_string();
        assert_eq!(told(&[], None), "no model was found: its files are none");
        let many = ["a", "b", "c", "d", "e", "f", "g"];
        let text = told(&many, None);
        assert!(text.ends_with("`a`, `b`, `c`, `d`, `e` and 2 more"), "{text}");
        let below = told(&["export/153/saved_model.pb"], None);
        assert!(below.contains("`saved_model.pb` is in its folder `export/153`"), "{below}");
        assert!(told(&["model.pkl", "model.bst"], None).contains("scikit-learn and of xgboost"));
        let other = told(&["model.pkl"], Some(ModelFramework::Tensorflow));
        assert!(other.contains("none of saved_model.pb"), "{other}");
    }
}
