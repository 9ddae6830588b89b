//! Programs for databases: what in them drops, empties or changes everything.

use super::{Call, Harm, remote};

/// Clients that take programs as words or on standard input.
const CLIENTS: [&str; 24] = [
    "psql",
    "pgcli",
    "mysql",
    "mariadb",
    "mysqlsh",
    "mycli",
    "sqlite3",
    "sqlite",
    "litecli",
    "sqlcmd",
    "isql",
    "bcp",
    "sqlplus",
    "cqlsh",
    "clickhouse",
    "clickhouse-client",
    "duckdb",
    "snowsql",
    "bq",
    "usql",
    "cockroach",
    "influx",
    "trino",
    "presto",
];

pub(super) fn harm(call: &Call<'_>, stdin: Option<&str>) -> Option<Harm> {
    let mongo = matches!(call.base, "mongosh" | "mongo");
    if !mongo && !CLIENTS.contains(&call.base) {
        return None;
    }
    let texts = call.args.iter().copied().chain(stdin);
    let found = texts.into_iter().find_map(|text| match mongo {
        true => remote::drops_documents(text).then(|| "it drops documents or databases".to_owned()),
        false => destroys(text),
    })?;
    Some(Harm::removes(found))
}

/// What in a program of SQL cannot be taken back. Words in quotes and remarks do not count.
pub(super) fn destroys(program: &str) -> Option<String> {
    let words = words(program);
    for statement in words.split(|word| word == ";") {
        let at = |index: usize| statement.get(index).map(String::as_str).unwrap_or_default();
        for (index, word) in statement.iter().enumerate() {
            let next = at(index + 1);
            let has_where = statement.iter().skip(index).any(|word| word == "where");
            let what = match word.as_str() {
                "drop" => matches!(
                    next,
                    "database"
                        | "schema"
                        | "table"
                        | "user"
                        | "role"
                        | "keyspace"
                        | "column"
                        | "tablespace"
                        | "owned"
                        | "measurement"
                        | "series"
                ),
                "truncate" => index == 0 || next == "table",
                "delete" => next == "from" && !has_where,
                "update" => index == 0 && statement.iter().any(|word| word == "set") && !has_where,
                _ => false,
            };
            if what {
                return Some(format!("its program says {word} {next}, which cannot be taken back"));
            }
        }
    }
    None
}

/// Lower-case words and `;`, without quoted text, names in quotes, and remarks.
fn words(program: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut letters = program.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' | '`' => {
                while letters.next().is_some_and(|inside| inside != letter) {}
                // something stands there
                words.push("?".to_owned());
                words.push(String::new());
            }
            '-' if letters.peek() == Some(&'-') => while letters.next().is_some_and(|inside| inside != '\n') {},
            '/' if letters.peek() == Some(&'*') => {
                letters.next();
                let mut before = ' ';
                for inside in letters.by_ref() {
                    if before == '*' && inside == '/' {
                        break;
                    }
                    before = inside;
                }
                words.push(String::new());
            }
            ';' => words.extend([";".to_owned(), String::new()]),
            letter if letter.is_alphanumeric() || matches!(letter, '_' | '.' | '?') => {
                if let Some(word) = words.last_mut() {
                    word.extend(letter.to_lowercase());
                }
            }
            _ => words.push(String::new()),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_taken_back_is_told_from_what_only_says_so() {
        for program in [
            "DROP TABLE users",
            "drop\n database if exists x;",
            "select 1; truncate users",
            "TRUNCATE TABLE a CASCADE",
            "delete from users",
            "delete from users; select * from x where a = 1",
            "with gone as (delete from t returning *) select 1",
            "update users set admin = true",
            "/* where */ delete from users -- where",
            "alter table t drop column c",
        ] {
            assert!(destroys(program).is_some(), "{program}");
        }
        for program in [
            "select 'drop table users'",
            "select * from drops",
            "delete from users where id = 1",
            "update users set a = 1 where id = 2",
            "select dropped, updated from truncates",
            "-- drop table users\nselect 1",
            "insert into t values ('; drop table x')",
            "create table truncate_log (a int)",
        ] {
            assert_eq!(destroys(program), None, "{program}");
        }
    }
}
