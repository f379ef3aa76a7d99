package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/dsn"
	"github.com/dlock-go/dlock/driver/session"
)

// Prefixes of the error replies from the driver's own scripts.
const (
	replyEnded     = "DLOCKENDED"
	replyLost      = "DLOCKLOST"
	replyGone      = "DLOCKGONE"
	replyStale     = "DLOCKSTALE"
	replyCancelled = "DLOCKCANCELLED"
	replyLayout    = "DLOCKLAYOUT"
)

// Prefixes of the error replies after which Redis closes a new connection.
const (
	replyFull   = "ERR max number of clients"
	replyDenied = "DENIED"
)

// replied reports whether err is a Redis error reply that begins with word, or
// with "ERR " and word, as proxies send it.
func replied(err error, word string) bool {
	var reply redis.Error
	return errors.As(err, &reply) && (strings.HasPrefix(reply.Error(), word) || strings.HasPrefix(reply.Error(), "ERR "+word))
}

// passing lists the prefixes of temporary error replies from a server, a
// cluster that moves keys, or a proxy.
var passing = []string{"LOADING", "BUSY", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "OOM", "MISCONF", "NOREPLICAS", "MOVED", "ASK",
	replyFull, "Script attempted to access a non local key", "UNKILLABLE", replyCancelled,
	"upstream failure", "no upstream host", "Connection refused"}

// lacking maps a part of an error reply to the feature that the server lacks.
var lacking = map[string]string{
	"undeclared key":        "scripts that compute the names of keys, which Dragonfly has with --default_lua_flags=allow-undeclared-keys",
	"section (replication)": "INFO replication",
}

// mark wraps err in an error of package driver that says whether a retry may
// help.
func mark(err error) error {
	switch {
	case err == nil, errors.Is(err, driver.ErrUnavailable):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// The driver's own timeout ended the dial, not the caller's context, so
		// the result must not match a context error.
		return fmt.Errorf("%w: %v", driver.ErrUnavailable, err)
	case replied(err, replyEnded):
		return fmt.Errorf("%w: the store does not know the session any more", driver.ErrSessionEnded)
	case replied(err, replyLost):
		return session.ErrLost
	case replied(err, replyGone):
		return driver.ErrGone
	case replied(err, replyStale):
		return driver.ErrStale
	case replied(err, replyLayout):
		words := strings.Fields(err.Error())
		return session.CheckLayout("the keys of the namespace", words[len(words)-2], words[len(words)-1])
	case permanent(err):
		if forbidden(err) {
			return fmt.Errorf("%w; docs/stores/redis.md lists the permissions that the user needs", err)
		}
		for part, what := range lacking {
			if strings.Contains(err.Error(), part) {
				return fmt.Errorf("the driver needs Redis 7 or Valkey: the server lacks %s: %w", what, err)
			}
		}
		if reply := redis.Error(nil); replied(err, "WRONGPASS") || replied(err, "NOAUTH") || !errors.As(err, &reply) {
			err = session.Login(err)
		}
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// forbidden reports whether the server denied a permission, except in dial
// errors, which may come from a Sentinel.
func forbidden(err error) bool {
	if errors.As(err, new(dialError)) {
		return false
	}
	// The server sends the last two replies to a user who may run the script
	// but not its commands.
	return replied(err, "NOPERM") || replied(err, "ERR The user executing the script") || replied(err, "ERR ACL failure in script")
}

func permanent(err error) bool {
	var reply redis.Error
	if errors.As(err, &reply) {
		return !slices.ContainsFunc(passing, func(word string) bool { return replied(err, word) })
	}
	return dsn.Untrusted(err)
}

func cutShort(ctx context.Context) error {
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, context.Cause(ctx))
}

const noAnswer = "no answer from "

var errSilent = errors.New("no answer")

// dialError marks an error from connecting, not from a request.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }
