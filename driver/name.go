package driver

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Maximum lengths of names.
const (
	// MaxQueue is the maximum length of a queue name, in bytes.
	MaxQueue = 512
	// MaxPrefix is the maximum length of a node prefix, in bytes.
	MaxPrefix = 224

	minDigits = 10
	maxDigits = 18 // 10^18 - 1 fits into an int64
)

// FormatName returns the name of a node: the prefix, followed by the sequence
// in at least ten digits. FormatName("web1-W-", 7) is "web1-W-0000000007".
//
// The prefix must be accepted by [CheckPrefix], and the sequence must not be
// negative or longer than 18 digits. FormatName does not check this.
// [ParseName] may fail to split a name made of other values.
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

// ParseName is the inverse of [FormatName]: it splits the name of a node into
// prefix and sequence. The prefix includes the dash before the sequence, and
// may contain more dashes and digits. The result ok reports whether the name
// ends in a dash followed by 10 to 18 digits.
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

// CheckPrefix returns nil if Create accepts the prefix: two to [MaxPrefix]
// bytes of printable UTF-8 that contain no slash and end in a dash. Otherwise
// the error matches [ErrBadName] and says what is wrong.
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

// CheckQueue returns nil if a queue may have this name: at most [MaxQueue]
// bytes of printable UTF-8, in segments separated by slashes. No segment is
// empty, "." or "..". A segment may look like a node name, such as
// "order-1234567890": see rule 2 at [Session.Create]. For any other name the
// error matches [ErrBadName] and says what is wrong.
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
		switch segment {
		case "":
			return fmt.Errorf("%w: %q has an empty segment: a slash at its start or end, or two slashes in a row", ErrBadName, queue)
		case ".", "..":
			return fmt.Errorf("%w: %q has a segment %q", ErrBadName, queue, segment)
		}
	}
	return nil
}

// unprintable returns the index of the first unprintable character. Replacement
// characters count as unprintable, because they stand for something lost.
func unprintable(s string) (at int, found bool) {
	for i, r := range s {
		if r == utf8.RuneError || r == '\ufffc' || !unicode.IsPrint(r) {
			return i, true
		}
	}
	return 0, false
}
