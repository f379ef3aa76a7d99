package redisdriver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/dsn"
)

// Prefixes of the errors returned by the scripts.
const (
	replyEnded     = "DLOCKENDED"
	replyGone      = "DLOCKGONE"
	replyCancelled = "DLOCKCANCELLED"
)

// Prefixes of the error replies with which a server rejects a connection before
// closing it.
const (
	replyFull   = "ERR max number of clients"
	replyDenied = "DENIED"
)

// replied reports whether err is an error reply from the server that begins
// with word.
func replied(err error, word string) bool {
	var reply redis.Error
	return errors.As(err, &reply) && strings.HasPrefix(reply.Error(), word)
}

// passing lists the prefixes of error replies that are temporary: the server is
// starting, busy, or out of memory or disk space, is no longer the master, or
// is moving keys to another server of its cluster.
var passing = []string{"LOADING", "BUSY", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "OOM", "MISCONF", "NOREPLICAS", "MOVED", "ASK",
	replyFull, "ERR Script attempted to access a non local key", "UNKILLABLE", replyCancelled}

// mark maps err to the errors of package driver. A reply from the server is
// temporary only if passing lists it; any other error comes from the network
// and is temporary unless it concerns TLS or a certificate file.
func mark(err error) error {
	switch {
	case err == nil, errors.Is(err, driver.ErrUnavailable):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// A timeout inside the driver ended the dial, not the caller's context,
		// so the result must not match the context's error.
		return fmt.Errorf("%w: %v", driver.ErrUnavailable, err)
	case replied(err, replyEnded):
		return fmt.Errorf("%w: the store does not know the session any more", driver.ErrSessionEnded)
	case replied(err, replyGone):
		return driver.ErrGone
	case permanent(err):
		if forbidden(err) {
			return fmt.Errorf("%w; the package documentation of redisdriver lists the permissions that the user needs", err)
		}
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// forbidden reports whether the server denied the user a permission. Replies
// from a Sentinel don't count, because it has its own users.
func forbidden(err error) bool {
	if errors.As(err, new(dialError)) {
		return false
	}
	// The user may be allowed to run a script but not all of its commands.
	return replied(err, "NOPERM") || replied(err, "ERR The user executing the script") || replied(err, "ERR ACL failure in script")
}

func permanent(err error) bool {
	var reply redis.Error
	if errors.As(err, &reply) {
		for _, word := range passing {
			if strings.HasPrefix(reply.Error(), word) {
				return false
			}
		}
		return true
	}
	var (
		verification *tls.CertificateVerificationError
		header       tls.RecordHeaderError
		remote       *net.OpError
		host         x509.HostnameError
		file         *dsn.FileError
	)
	return errors.As(err, &verification) || errors.As(err, &header) || errors.As(err, &host) ||
		errors.As(err, &remote) && remote.Op == "remote error" || // a TLS alert from the server
		errors.As(err, &file)
}

// cutShort returns the error for a call whose context has ended.
func cutShort(ctx context.Context) error {
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, context.Cause(ctx))
}

// noAnswer begins the message of an error about a server that does not answer.
const noAnswer = "no answer from "

var errSilent = errors.New("no answer")

// dialError marks an error as coming from a dial rather than a request.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }
