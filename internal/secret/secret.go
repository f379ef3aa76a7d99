// Package secret keeps passwords on the command line out of what the program says about it.
package secret

import (
	"strconv"
	"strings"
)

// Hidden is shown in place of what may be a password.
const Hidden = "..."

// Hide returns text without the logins of data source names that stand among the arguments: what is
// before an at sign. Arguments are repeated in messages when they stand in the wrong place.
func Hide(text string, args []string) string {
	for _, arg := range args {
		text = hide(text, arg)
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
	// Package flag cuts an argument at an equals sign, which a password may have.
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

// quoted is s as %q writes it, without the quotes.
func quoted(s string) string {
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}
