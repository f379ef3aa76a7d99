package dsn

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Parameters maps each parameter's name to the function that parses and stores
// its value. The error of such a function must not repeat the value.
type Parameters map[string]func(value string) error

// Parse stores the parameters of a query of the form name=value&name=value. It
// decodes percent escapes, but leaves plus signs alone. An unknown parameter is
// an error.
func (p Parameters) Parse(query string) error {
	if query == "" {
		return nil
	}
	seen := make(map[string]bool)
	for i, pair := range strings.Split(query, "&") {
		name, escaped, found := strings.Cut(pair, "=")
		known := p[name] != nil
		switch {
		case !known && isPlainWord(name) && found:
			return fmt.Errorf("parameter %d: %q is not known", i+1, name)
		case !known:
			return fmt.Errorf("parameter %d is not known", i+1)
		case !found:
			return fmt.Errorf("parameter %s has no value", name)
		case seen[name]:
			return fmt.Errorf("parameter %s is there twice", name)
		}
		seen[name] = true
		value, err := url.PathUnescape(escaped)
		if err != nil {
			return fmt.Errorf("parameter %s has a bad percent escape", name)
		}
		if _, err := p.Set(name, value); err != nil {
			return err
		}
	}
	return nil
}

// Set stores one parameter, whose value is already decoded, and reports whether
// the parameter is known. It is for drivers that share a query with a client
// library.
func (p Parameters) Set(name, value string) (known bool, err error) {
	set, known := p[name]
	if !known {
		return false, nil
	}
	if err := set(value); err != nil {
		return true, fmt.Errorf("parameter %s: %w", name, err)
	}
	return true, nil
}

// isPlainWord reports whether s looks like a mistyped parameter, rather than
// part of a password, so that an error may quote it.
func isPlainWord(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// Duration returns a function for [Parameters] that stores a duration from
// least to most, inclusive.
func Duration(to *time.Duration, least, most time.Duration) func(value string) error {
	return func(value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d < least || d > most {
			return fmt.Errorf("not a duration from %v to %v, such as 10s", least, most)
		}
		*to = d
		return nil
	}
}

// Int returns a function for [Parameters] that stores an integer from least to
// most, inclusive.
func Int[T int | int64](to *T, least, most T) func(value string) error {
	return func(value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < int64(least) || n > int64(most) {
			return fmt.Errorf("not a number from %d to %d", least, most)
		}
		*to = T(n)
		return nil
	}
}

// Bool returns a function for [Parameters] that stores true or false.
func Bool(to *bool) func(value string) error {
	return func(value string) error {
		b, err := strconv.ParseBool(value)
		if err != nil {
			return errors.New("neither true nor false")
		}
		*to = b
		return nil
	}
}

// Text returns a function for [Parameters] that stores any non-empty text.
func Text(to *string) func(value string) error {
	return func(value string) error {
		if value == "" {
			return errors.New("empty")
		}
		*to = value
		return nil
	}
}
