package driver

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of names, in bytes.
const (
	// MaxQueue is the longest name of a queue.
	MaxQueue = 512
	// MaxPrefix is the longest prefix of a node.
	MaxPrefix = 224

	minDigits = 10
	maxDigits = 18 // 10^18 - 1 fits an int64
)

// FormatName returns the name of a node: prefix and sequence, the latter in at least ten
// digits. FormatName("web1-W-", 7) is "web1-W-0000000007". The prefix has to end in a dash (see
// [CheckPrefix]); seq must not be negative nor have more than 18 digits.
func FormatName(prefix string, seq int64) string {
	var buf [64]byte
	b := append(buf[:0], prefix...)
	var digits [20]byte
	d := strconv.AppendInt(digits[:0], seq, 10)
	for range minDigits - len(d) {
		b = append(b, '0')
	}
	return string(append(b, d...))
}

// ParseName splits a name that [FormatName] has made into prefix and sequence.
// It reads from the right, so that a prefix may itself hold dashes and digits.
// The prefix includes the dash. ok is false for a name that does not end in a
// dash and 10 to 18 digits.
func ParseName(name string) (prefix string, seq int64, ok bool) {
	i := len(name)
	for i > 0 && name[i-1] >= '0' && name[i-1] <= '9' {
		i--
	}
	if n := len(name) - i; n < minDigits || n > maxDigits || i == 0 || name[i-1] != '-' {
		return "", 0, false
	}
	seq, err := strconv.ParseInt(name[i:], 10, 64)
	if err != nil {
		return "", 0, false
	}
	return name[:i], seq, true
}

// CheckPrefix returns nil for a prefix that Create takes: at most [MaxPrefix] bytes of
// printable UTF-8 without a slash, at least two of them, ending in a dash. Other errors match
// [ErrBadName].
func CheckPrefix(prefix string) error {
	switch {
	case len(prefix) < 2 || prefix[len(prefix)-1] != '-':
		return fmt.Errorf("%w: prefix %q does not end in a dash after at least one character", ErrBadName, prefix)
	case len(prefix) > MaxPrefix:
		return fmt.Errorf("%w: prefix of %d bytes is longer than %d", ErrBadName, len(prefix), MaxPrefix)
	case strings.Contains(prefix, "/"):
		return fmt.Errorf("%w: prefix %q contains a slash", ErrBadName, prefix)
	}
	if at, bad := unprintable(prefix); bad {
		return fmt.Errorf("%w: prefix %q has an unprintable character at byte %d", ErrBadName, prefix, at)
	}
	return nil
}

// CheckQueue returns nil for a name that a queue may have: one or more segments
// with a slash between them, at most [MaxQueue] bytes of printable UTF-8 in
// all. A segment is not empty, not "." and not "..". It may look like a node,
// as "order-1234567890" does: see rule 2. Other errors match [ErrBadName] and say
// what is wrong.
func CheckQueue(queue string) error {
	switch {
	case queue == "":
		return fmt.Errorf("%w: the name is empty", ErrBadName)
	case len(queue) > MaxQueue:
		return fmt.Errorf("%w: a name of %d bytes is longer than %d", ErrBadName, len(queue), MaxQueue)
	}
	if at, bad := unprintable(queue); bad {
		return fmt.Errorf("%w: %q has an unprintable character at byte %d", ErrBadName, queue, at)
	}
	for segment := range strings.SplitSeq(queue, "/") {
		if err := checkSegment(queue, segment); err != nil {
			return err
		}
	}
	return nil
}

func checkSegment(queue, segment string) error {
	switch segment {
	case "":
		return fmt.Errorf("%w: %q has an empty segment (a slash at an end, or two in a row)", ErrBadName, queue)
	case ".", "..":
		return fmt.Errorf("%w: %q has a segment %q", ErrBadName, queue, segment)
	}
	return nil
}

// unprintable returns the place of the first byte that is not part of a printable character.
// The replacement character counts as unprintable: it stands for bytes that were lost.
func unprintable(s string) (at int, found bool) {
	for i, r := range s {
		if r == utf8.RuneError || r == '\ufffc' || !unicode.IsPrint(r) {
			return i, true
		}
	}
	return 0, false
}
