"""The Alembic environment: it uses the connection that Database.migrate passes."""

from alembic import context
from sqlmodel import SQLModel

from orchestrator.store import tables

assert tables  # the import fills the metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
