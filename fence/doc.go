// Package fence makes resources refuse late writes, by comparing the fencing
// tokens of a lock.
//
// A process that has lost its lock may still write, for example after a pause.
// No lock can stop such a write, but the resource can: the token of an exclusive
// lock is greater than all earlier ones, so a smaller token belongs to a holder
// that has been replaced. The package imports only the standard library, and
// its tokens may come from any lock.
//
//   - [Table] compares tokens in a SQL database, in the caller's transaction.
//   - [Marks] compares them in the memory of one process, and [Marks.Handler]
//     does so for an HTTP service.
//
// Package fence/fencetest tests resources of your own.
//
// # Writers and readers
//
// The resource keeps the greatest token of a writer and accepts an equal one,
// because one holder may write several times. The token of a shared lock is
// compared but never kept: readers hold the lock together, so the order of their
// tokens means nothing. A holder that has called Downgrade is a reader, with the
// token that it had as a writer.
//
// Until the new holder's first write, the resource still accepts the old token.
// If that would do harm, let each new holder call [Table.Raise] or [Marks.Do]
// before it does anything else.
//
// # Names
//
// A resource is named by the caller, usually like its lock. A name has 1 to 512
// bytes of UTF-8 without NUL, and a token is greater than zero. Other values are
// errors that match [ErrInvalid].
package fence

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

var (
	// ErrStale means that a later holder of the lock has written. Stop the
	// work: it is not an error that a retry can cure.
	ErrStale = errors.New("fence: stale token")
	// ErrInvalid means that a resource, a token or the name of a table is
	// malformed, or that a table does not store a resource or token unchanged.
	ErrInvalid = errors.New("fence: invalid")
	// ErrNoToken means that an HTTP request has no token.
	ErrNoToken = errors.New("fence: no token")
)

const maxResource = 512

func staleError(resource string, token, kept int64) error {
	return fmt.Errorf("%w: %q has seen token %d, which is greater than %d", ErrStale, resource, kept, token)
}

func check(resource string, token int64) error {
	if err := checkResource(resource); err != nil {
		return err
	}
	if token <= 0 {
		return fmt.Errorf("%w: token %d of %q is not greater than zero", ErrInvalid, token, resource)
	}
	return nil
}

func checkResource(resource string) error {
	switch {
	case resource == "":
		return fmt.Errorf("%w: the resource has no name", ErrInvalid)
	case len(resource) > maxResource:
		return fmt.Errorf("%w: the name of a resource has %d bytes, more than %d", ErrInvalid, len(resource), maxResource)
	case !utf8.ValidString(resource) || strings.ContainsRune(resource, 0):
		return fmt.Errorf("%w: resource %q is not UTF-8 without NUL", ErrInvalid, resource)
	}
	return nil
}
