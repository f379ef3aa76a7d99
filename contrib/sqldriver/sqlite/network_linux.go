package sqlite

import "syscall"

// networkFileSystem returns the type of a file system that other machines may
// share, or "".
func networkFileSystem(dir string) string {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return ""
	}
	return networkFileSystems[uint32(st.Type)]
}

func freeSpace(dir string) (bytes uint64, known bool) {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return 0, false
	}
	return st.Bavail * uint64(st.Bsize), true
}

var networkFileSystems = map[uint32]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2",
	0x5346414f: "AFS", 0x00c36400: "Ceph", 0x0bd00bd0: "Lustre", 0x01161970: "GFS2",

	// File systems that a virtual machine shares with its host.
	0x01021997: "9p", 0x786f4256: "vboxsf", 0xbacbacbc: "vmhgfs", 0x7c7c6673: "prl_fs",

	// On FUSE, locks may not reach another mount, whose sessions would then
	// seem dead.
	0x65735546: "FUSE",
}
