package sqlite

import "syscall"

// networkFileSystem returns the name of the file system of a directory, by the
// numbers of statfs(2), if other machines may share it. Otherwise it returns
// "".
func networkFileSystem(dir string) string {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return ""
	}
	return networkFileSystems[uint32(st.Type)]
}

var networkFileSystems = map[uint32]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2",
	0x5346414f: "AFS", 0x00c36400: "Ceph", 0x0bd00bd0: "Lustre", 0x01161970: "GFS2",

	// Directories that a virtual machine shares with its host.
	0x01021997: "9p", 0x786f4256: "vboxsf", 0xbacbacbc: "vmhgfs", 0x7c7c6673: "prl_fs",

	// Local ones are among these, such as gocryptfs, but also sshfs, virtiofs
	// and the like. The kernel keeps locks to one mount, unless the program
	// behind it takes them over. So on any other mount, every session seems to
	// be dead.
	0x65735546: "FUSE",
}
