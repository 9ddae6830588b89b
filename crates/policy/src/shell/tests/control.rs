//! What chooses, repeats, names and computes: allowed where each command in it is, and nothing else can be run by it.

use super::check;

#[test]
fn tests_that_are_joined_are_tests() {
    check(
        "",
        "allow",
        &[
            "[[ -f a && -d src ]] && echo ready",
            "[[ -f a || ! -d src && ( -n $x ) ]] || echo no",
            "[[ \"$(git branch --show-current)\" == main ]] && echo yes",
            "x=$(cat a); [[ $x == a* && $x != ab ]] && echo \"$x\"",
            "x=$(cat a); if [[ $x =~ ^[0-9]+$ ]]; then echo number; fi",
        ],
    );
    check(
        "",
        "ask",
        &[
            // a shell without `[[` would run `rm = x ]]`
            "[[ -f a || rm = x ]]",
            "[[ -f a || ( rm = x ) ]]",
            "[[ -f $x && -f a ]]",
            // computed, substitutions within an index too
            "x=$(cat a); [[ $x -eq 1 ]]",
            "[[ -v x && -f a ]]",
            "[[ $MODE == a && -f a ]]",
            "[[ -f a && $(rm b) == x ]]",
        ],
    );
    check("", "deny", &["[[ -f a && -n $(rm -rf /) ]]", "[[ -f a || -n `cat .env` ]]"]);
}

#[test]
fn each_branch_of_a_case_is_judged() {
    check(
        "",
        "allow",
        &[
            "case a in a) ls;; esac",
            "case \"$(uname -s)\" in Linux*|Darwin) echo a ;; (b) ;; *) ls src ;; esac | head",
            "x=$(cat a)\ncase $x in\n  1)\n    ls\n    ;;\n  [2-9]) echo \"$x\" ;;\nesac",
            "case a in a) ls ;& b) pwd ;; esac",
        ],
    );
    check(
        "",
        "ask",
        &[
            "case a in a) rm x;; esac",
            "case a in a) ls;; *) make;; esac",
            "case $X in a) ls;; esac",
            "case a in $(rm x)) ls;; esac",
            "case a in a) ls;; esac > out",
            "case a in a) cd /;; esac; cat x",
            "case a in a) x=src;; *) x=$X;; esac; cat $x",
        ],
    );
    check("", "deny", &["case a in b) rm -rf /;; esac", "case $(cat .env) in a) ls;; esac"]);
}

#[test]
fn what_counts_a_number_comes_to_an_end() {
    check(
        "",
        "allow",
        &[
            "for ((i=0; i<5; i++)); do echo $i; done",
            "for (( i = 1 ; i <= 3 ; i += 2 )); do sed -n 1p README.md; done",
            "i=0; while [ $i -lt 3 ]; do echo $i; i=$((i+1)); done",
            "i=3; until [[ $i == 0 ]]; do ls; ((i--)); done",
            "n=$(ls | wc -l); for ((i=0; i<n; i++)); do echo \"$((n - i))\"; done",
            "i=1; echo $((i * 2 + 1))",
            "x=0; for n in 1 2 3; do x=$((x + n)); done; echo $x",
            "[[ $(git status --porcelain | wc -l) -gt 0 ]] && echo dirty",
            "n=$(wc -l < README.md); [[ $n -ge 10 && \"${n}\" -lt 99 ]] && echo \"$n\"",
            "echo \"$(echo $PATH | tr ':' '\\n' | wc -l) entries\"",
            "grep -rn --include='*.rs' x .",
            "i=0; for f in src/*; do i=$((i+1)); echo \"$i $f\"; done",
        ],
    );
    check(
        "",
        "ask",
        &[
            "for ((;;)); do ls; done",
            "for ((i=0; i<x; i++)); do ls; done",
            "for ((i=0; i<5; i++)); do rm $i; done",
            "for ((i=a[0]; i<5; i++)); do ls; done",
            "i=0; while [ $i -lt 3 ]; do ls; done",
            // what is put in is computed in turn, substitutions within an index too
            "i=$(cat a); echo $((i + 1))",
            "i=0; i=$(cat a); echo $((i + 1))",
            "i=0; read i < a; echo $((i + 1))",
            "i=0; for i in a b; do echo $((i + 1)); done",
            "i=0; printf -v i x; echo $((i + 1))",
            "i=0x; echo $((i))",
            "x=0; for n in $(cat a); do echo $((x + n)); done",
            "[[ $(cat a) -gt 0 ]] && ls",
            "n=$(cat a); [[ $n -gt 0 ]] && ls",
            "n=$(wc -l a); [[ $n -gt 0 ]] && ls",
            "[[ $(ls | cat) -gt 0 ]] && ls",
            "grep -rn --include='*' x .",
            "grep -rn --include='*.json' x .",
            // no arithmetic to some shells
            "rm=1; ((rm + 1))",
            "i=1; ((i > 5))",
            "( (rm x) )",
        ],
    );
    check(
        "",
        "deny",
        &[
            "for ((i=0; i<5; i++)); do rm -rf /; done",
            "for ((i=$(rm -rf /); i<5; i++)); do ls; done",
            "((i=$(cat .env)))",
        ],
    );
}

#[test]
fn a_function_is_judged_where_it_is_called() {
    check(
        "",
        "allow",
        &[
            "greet() { echo \"hello $1\"; }; greet world",
            "show() { sed -n \"$1,$2p\" README.md; }\nshow 1 20 | head -3",
            "count() ( wc -l \"$1\" )\nfor f in README.md src/a.rs; do count \"$f\"; done",
            "log() { echo \"- $*\"; }; log \"$(git rev-parse HEAD)\" done",
            "never() { make; }; ls",
            "inner() { cat \"$1\"; }; outer() { inner src/a.rs; }; outer x",
        ],
    );
    check(
        "",
        "ask",
        &[
            "f() { make; }; f",
            "f() { cat \"$1\"; }; f",
            "f() { cat \"$1\"; }; f ../x",
            "f() { cat \"$2\"; }; f src/* README.md",
            "f() { shift; cat \"$1\"; }; f README.md x",
            "f() { \"$@\"; }; f make",
            "f() { $1; }; f make",
            // which of them it is cannot be told
            "if ls; then f() { make; }; else f() { ls; }; fi; f",
            "f() { ls; }; f() { make; }; f",
            "f() { ls; }; if ls; then f() { make; }; else ls; fi; f",
            "ls && f() { ls; }; f",
            // a program of that name, if there is one
            "f() { ls; }; timeout 5 f",
            "f() { ls; }; command f",
            // what others call by that name
            "ls() { pwd; }; ls",
            "cd() { pwd; }; cd src",
            "command_not_found_handle() { ls; }; x",
            "export() { ls; }; export a",
            "function f { ls; }; f",
            "inner() { cat \"$1\"; }; outer() { inner; }; outer README.md",
        ],
    );
    check(
        "",
        "deny",
        &[
            "f() { rm -rf \"$1\"; }; f /",
            "f() { cat \"$1\"; }; f .env",
            "f() { $1; }; f 'rm -rf /'",
            "f() { shift; rm -rf $1; }; f a /",
            "f() { rm -rf /; }; ls",
            "rm() { echo; }; rm -rf /",
            "inner() { cat \"$1\"; }; outer() { inner .env; }; outer README.md",
        ],
    );
}

#[test]
fn files_whose_names_are_handed_on_are_read_where_every_name_is_told() {
    check(
        "",
        "allow",
        &[
            "grep -rl x src | xargs grep -n y",
            "grep -rl x src | sort -u | head -5 | xargs wc -l",
            "grep -l x src/*.rs | xargs -n1 head -3",
            "ls src/*.rs | xargs wc -l",
            "rg -l x src | xargs -I{} head -2 {}",
            "find src -name '*.rs' | grep -v test | xargs sed -n 1p",
            "git ls-files src | xargs wc -l",
            "wc -l $(find src -name '*.rs')",
            "cat $(git ls-files src | head -3) | wc -l",
            "grep -n x $(grep -rl y src)",
            "diff -r src src",
        ],
    );
    check(
        "",
        "ask",
        &[
            // one of them holds a secret, or is a link
            "grep -rl x . | xargs cat",
            "git ls-files | xargs cat",
            "grep -rl x mixed | xargs cat",
            "diff -r src mixed",
            "ls mixed/*.rs | xargs cat",
            // not the names as they are
            "grep -rn x src | xargs cat",
            "grep -rlZ x src | xargs cat",
            "ls src | xargs cat",
            "grep -rl x src | sed s/a/b/ | xargs cat",
            "grep -rl x src | head -c 5 | xargs cat",
            "grep -rl x src | grep -o a | xargs cat",
            "grep -rl x src | uniq -c | xargs cat",
            "grep -rl x src | sort list | xargs cat",
            "grep -rl x src | head < list | xargs cat",
            "cat list | xargs cat",
            "wc -l $(cat list)",
            "wc -l $(ls src)",
            "wc -l x$(find src -name '*.rs')",
            "wc -l $(find src -name '*.rs'; cat list)",
            "wc -l $(find src -name '*.rs' | sed s/a/b/)",
            "IFS=a; wc -l $(find src -name '*.rs')",
            "cat $(grep -rl x .)",
            "cat $(grep -rl x mixed)",
            "sed $(find src -name '*.rs') a",
            "sed -n 1p $(find src -name '*.rs') -i",
            "rm $(find src -name '*.rs')",
            "cd src; wc -l $(find .. -name '*.rs')",
            // not as files that are read
            "grep -rl x src | xargs",
            "grep -rl x src | xargs sed",
            "grep -rl x src | xargs -I{} sed {} a",
            "grep -rl x src | xargs -I{} sh -c 'cat {}'",
            "grep -rl x src | xargs -d. cat",
            "grep -rl x src | xargs -a list cat",
            "grep -rl x src | xargs sed -i s/a/b/",
            "grep -rl x src | xargs rm",
            "xargs -a list cat",
        ],
    );
    check("", "deny", &["grep -rl x src | xargs -I{} rm -rf / {}", "find . -name .env | sort | xargs cat"]);
}

#[test]
fn what_export_sets_for_looks_alone_is_allowed() {
    check("", "allow", &["export LC_ALL=C; sort README.md", "export LANG=C TZ=UTC && ls"]);
    check("", "ask", &["export PATH=src; ls", "export A=b; ls", "export LC_ALL=$X; ls", "export LC_ALL", "export -p"]);
    check(
        "",
        "allow",
        &["x=(a b c); echo \"${x[1]} ${#x[@]}\"", "echo \"$USER $HOME\"", "x=(src README.md)\necho \"${x[@]}\""],
    );
    check(
        "",
        "ask",
        &["x=(a $X); echo \"${x[0]}\"", "x=(a); rm \"${x[0]}\"", "PATH=(a); ls", "x=([0]=a); ls", "x+=(a); ls"],
    );
    check("", "deny", &["x=(rm -rf /); \"${x[@]}\"", "x=($(rm -rf /))", "echo \"$USER $API_TOKEN\""]);
}
