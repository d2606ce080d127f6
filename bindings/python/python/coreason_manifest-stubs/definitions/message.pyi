# For type checkers: `import coreason_client` makes this module available.
from coreason_client.definitions.message import *
