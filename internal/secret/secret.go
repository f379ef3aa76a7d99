// Package secret keeps passwords given on the command line out of a program's
// output.
package secret

import (
	"regexp"
	"strconv"
	"strings"
)

// Hidden replaces what may be a password.
const Hidden = "..."

// Hide removes from text the passwords in the arguments. A password is the part
// of an argument between a colon and the last at sign, as in
// "zk://user:password@host", and the value of a parameter, as in "host=h
// password=secret". All arguments count, because a message may repeat one that
// is in the wrong place.
func Hide(text string, args []string) string {
	for _, arg := range args {
		text = hide(hideParameters(text, arg), arg)
	}
	return text
}

// parameter matches a password that follows its name. A value in single quotes
// may contain spaces.
var parameter = regexp.MustCompile(`(?i)(?:password|passwd|pwd|pass)\s*=\s*('(?:[^'\\]|\\.)*'?|[^&\s]+)`)

// hideParameters hides passwords that follow their names in the argument.
func hideParameters(text, arg string) string {
	for _, m := range parameter.FindAllStringSubmatch(arg, -1) {
		hidden := strings.TrimSuffix(m[0], m[1]) + Hidden
		text = strings.ReplaceAll(text, m[0], hidden)
		text = strings.ReplaceAll(text, quoted(m[0]), hidden)
	}
	return text
}

func hide(text, arg string) string {
	login, _, found := cutLast(arg, "@")
	if !found {
		return text
	}
	if _, after, found := strings.Cut(login, "://"); found {
		login = after
	}
	user, password, found := strings.Cut(login, ":")
	if !found || password == "" {
		return text
	}
	text = strings.ReplaceAll(text, login, user+":"+Hidden)
	text = strings.ReplaceAll(text, quoted(login), user+":"+Hidden)
	// A message of package flag may show only the part of an argument before
	// its first equals sign, which may be in the password. So hide the part of
	// the password before it, too.
	if before, _, found := strings.Cut(password, "="); found && before != "" {
		text = strings.ReplaceAll(text, user+":"+before, user+":"+Hidden)
	}
	return text
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// quoted returns s as printed by %q, without the quotes.
func quoted(s string) string {
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}
