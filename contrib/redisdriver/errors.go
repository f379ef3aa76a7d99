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

// Errors of the scripts begin with these words.
const (
	replyEnded     = "DLOCKENDED"
	replyGone      = "DLOCKGONE"
	replyCancelled = "DLOCKCANCELLED"
)

// A server answers with these words to a connection that it closes at once.
const (
	replyFull   = "ERR max number of clients"
	replyDenied = "DENIED"
)

// replied reports whether err is an error reply that begins with this word.
func replied(err error, word string) bool {
	var reply redis.Error
	return errors.As(err, &reply) && strings.HasPrefix(reply.Error(), word)
}

// passing are the first words of error replies that may pass by themselves: the server
// starts, is busy, has no memory or no disk, is not the master any more, or moves the
// keys to another server of its cluster.
var passing = []string{"LOADING", "BUSY", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "OOM", "MISCONF", "NOREPLICAS", "MOVED", "ASK",
	replyFull, "ERR Script attempted to access a non local key", "UNKILLABLE", replyCancelled}

// mark marks an error as one of package driver. An error reply of the server counts as
// an error that may pass only if it begins with an entry of the list passing. Any
// other error comes from the network and may pass, except an error of TLS or of its
// files.
func mark(err error) error {
	switch {
	case err == nil, errors.Is(err, driver.ErrUnavailable):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// A limit of the driver has ended a dial, and not the context of the call. So
		// the error must not match the error of a context.
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

// forbidden reports whether the user lacks a permission at the server. A Sentinel has
// users of its own, so its replies do not count.
func forbidden(err error) bool {
	if errors.As(err, new(dialError)) {
		return false
	}
	// A script that the user may call can use a command that the user lacks.
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
		errors.As(err, &remote) && remote.Op == "remote error" || // the server has sent a TLS alert
		errors.As(err, &file)
}

// cutShort returns the error of a call whose context has ended.
func cutShort(ctx context.Context) error {
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, context.Cause(ctx))
}

// noAnswer begins the text of an error about a server that does not answer.
const noAnswer = "no answer from "

var errSilent = errors.New("no answer")

// dialError is an error of a dial, and not of a request.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }
