package pgtest

import (
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// account is the operating system user that runs a server, because PostgreSQL
// refuses to run as root. Nil means the current user.
type account struct{ uid, gid int }

func serverAccount() (*account, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	return &account{uid, gid}, err
}

func (a *account) command(args ...string) []string {
	if a == nil {
		return args
	}
	uid, gid := strconv.Itoa(a.uid), strconv.Itoa(a.gid)
	return append([]string{"setpriv", "--reuid=" + uid, "--regid=" + gid, "--clear-groups", "--"}, args...)
}

// own makes the account the owner of a directory and all files in it.
func (a *account) own(dir string) error {
	if a == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, a.uid, a.gid)
	})
}
