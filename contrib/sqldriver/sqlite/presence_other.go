//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package sqlite

import (
	"context"
	"crypto/rand"
	"io/fs"
)

// kernelLocks says that this package uses no locks of the kernel on this
// system. Then each commit waits for the disk, and a process that died keeps
// its locks until its sessions have timed out.
const kernelLocks = false

type presence struct{ id string }

func enter(string, fs.FileMode) (*presence, error)       { return &presence{rand.Text()}, nil }
func (p *presence) attend(context.Context) (bool, error) { return false, nil }
func (p *presence) share(context.Context) error          { return nil }
func (p *presence) dead(string) bool                     { return false }
func (p *presence) forget(string)                        {}
func (p *presence) remains() map[string]bool             { return nil }
func (p *presence) notify(string)                        {}
func (p *presence) hear(func())                          {}
func (p *presence) silence()                             {}
func (p *presence) leave()                               {}
func (p *presence) unlock()                              {}

// mayWrite returns nil, because this package cannot check permissions on this
// system.
func mayWrite(string) error { return nil }
