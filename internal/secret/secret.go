// Package secret keeps passwords of the command line out of output.
package secret

import (
	"regexp"
	"strconv"
	"strings"
)

// Hidden is printed in place of a password.
const Hidden = "..."

// Hide removes from text the passwords found in args. A password is
// whatever is between a colon and the last at sign of an argument, as in
// "zk://user:password@host", or the value of a password parameter, as in
// "host=h password=secret". All arguments are searched, because an error
// message may quote one that is in the wrong place.
func Hide(text string, args []string) string {
	for _, arg := range args {
		text = hide(hideParameters(text, arg), arg)
	}
	return text
}

// parameter matches a password parameter. A quoted value may contain spaces.
var parameter = regexp.MustCompile(`(?i)(?:password|passwd|pwd|pass)\s*=\s*('(?:[^'\\]|\\.)*'?|[^&\s]+)`)

func hideParameters(text, arg string) string {
	for _, m := range parameter.FindAllStringSubmatch(arg, -1) {
		hidden := strings.TrimSuffix(m[0], m[1]) + Hidden
		text = strings.ReplaceAll(text, m[0], hidden)
		text = strings.ReplaceAll(text, quoted(m[0]), hidden)
	}
	return text
}

func hide(text, arg string) string {
	at := strings.LastIndex(arg, "@")
	if at < 0 {
		return text
	}
	login := arg[:at]
	if _, after, found := strings.Cut(login, "://"); found {
		login = after
	}
	user, password, found := strings.Cut(login, ":")
	if !found || password == "" {
		return text
	}
	text = strings.ReplaceAll(text, login, user+":"+Hidden)
	text = strings.ReplaceAll(text, quoted(login), user+":"+Hidden)
	// Package flag may quote only what precedes an equals sign in the
	// password.
	if before, _, found := strings.Cut(password, "="); found && before != "" {
		text = strings.ReplaceAll(text, user+":"+before, user+":"+Hidden)
	}
	return text
}

// quoted returns s as printed by %q, without the quotes.
func quoted(s string) string {
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}
