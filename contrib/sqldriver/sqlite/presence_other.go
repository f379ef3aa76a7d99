//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package sqlite

import (
	"context"
	"crypto/rand"
	"io/fs"
)

// kernelLocks is false: each commit waits for the disk, and dead sessions must
// time out.
const kernelLocks = false

type presence struct{ id string }

func enter(string, fs.FileMode) (*presence, error)       { return &presence{rand.Text()}, nil }
func (p *presence) attend(context.Context) (bool, error) { return false, nil }
func (p *presence) share(context.Context) error          { return nil }
func (p *presence) dead(string) bool                     { return false }
func (p *presence) missing(string) bool                  { return false }
func (p *presence) forget(string)                        {}
func (p *presence) remains() map[string]bool             { return nil }
func (p *presence) notify(string)                        {}
func (p *presence) hears() bool                          { return false }
func (p *presence) hear(func())                          {}
func (p *presence) silence()                             {}
func (p *presence) leave()                               {}
func (p *presence) unlock()                              {}

// mayWrite returns nil, because permissions can't be checked on this system.
func mayWrite(string) error { return nil }
